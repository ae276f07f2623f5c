// How names.json was recorded: java Names.java HEX-FILE OUT-FILE, one DER name in hexadecimal per line.
// A line out is "= " and the UTF-16BE text in hexadecimal, or "! " and the exception.
import javax.security.auth.x500.X500Principal;
import java.io.*; import java.nio.charset.StandardCharsets; import java.util.*;
public class Names {
  public static void main(String[] a) throws Exception {
    BufferedReader r = new BufferedReader(new InputStreamReader(new FileInputStream(a[0])));
    PrintStream out = new PrintStream(new FileOutputStream(a[1]), false, "UTF-8");
    String line;
    while ((line = r.readLine()) != null) {
      byte[] der = HexFormat.of().parseHex(line.trim());
      String name;
      try { name = "= " + HexFormat.of().formatHex(new X500Principal(der).getName().getBytes(StandardCharsets.UTF_16BE)); }
      catch (Throwable e) { name = "! " + e.getClass().getSimpleName() + ": " + e.getMessage(); }
      out.println(name);
    }
    out.close();
  }
}
