import java.io.BufferedInputStream;
import java.io.DataInputStream;
import java.io.FileInputStream;
import java.lang.management.ManagementFactory;
import java.net.InetAddress;
import java.util.Optional;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.Quota;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.network.Session;
import org.apache.kafka.server.config.ClientQuotaManagerConfig;
import org.apache.kafka.server.quota.ClientQuotaManager;
import org.apache.kafka.server.quota.QuotaType;

/**
 * Apache Kafka's own ClientQuotaManager over a trace, one thread.
 *
 * Arguments: trace file, default user quota (bytes/s), passes. The trace is big-endian: int events,
 * int users, then per event int user, long epoch ms, int bytes. Every pass uses a new manager, so
 * the first ones warm the JIT. Prints a line per pass: CPU nanoseconds of the thread, wall
 * nanoseconds, how many were throttled, the sum of the throttle times.
 */
public final class ClientQuotaBench {
    public static void main(String[] args) throws Exception {
        int[] user;
        long[] time;
        int[] bytes;
        int users;
        try (DataInputStream in = new DataInputStream(
                new BufferedInputStream(new FileInputStream(args[0]), 1 << 20))) {
            int events = in.readInt();
            users = in.readInt();
            user = new int[events];
            time = new long[events];
            bytes = new int[events];
            for (int i = 0; i < events; i++) {
                user[i] = in.readInt();
                time[i] = in.readLong();
                bytes[i] = in.readInt();
            }
        }
        double quota = Double.parseDouble(args[1]);
        InetAddress address = InetAddress.getLoopbackAddress();
        Session[] sessions = new Session[users];
        for (int i = 0; i < users; i++)
            sessions[i] = new Session(new KafkaPrincipal("User", "user" + i), address);
        var threads = ManagementFactory.getThreadMXBean();
        for (int pass = 0; pass < Integer.parseInt(args[2]); pass++) {
            Metrics metrics = new Metrics(Time.SYSTEM);
            ClientQuotaManager manager = new ClientQuotaManager(
                new ClientQuotaManagerConfig(), metrics, QuotaType.PRODUCE, Time.SYSTEM, "bench");
            manager.updateQuota(Optional.of(ClientQuotaManager.DEFAULT_USER_ENTITY),
                Optional.empty(), Optional.of(Quota.upperBound(quota)));
            long throttled = 0;
            long sum = 0;
            long cpu = threads.getCurrentThreadCpuTime();
            long wall = System.nanoTime();
            for (int i = 0; i < user.length; i++) {
                int ms = manager.recordAndGetThrottleTimeMs(
                    sessions[user[i]], "client", bytes[i], time[i]);
                if (ms > 0) {
                    throttled++;
                    sum += ms;
                }
            }
            wall = System.nanoTime() - wall;
            cpu = threads.getCurrentThreadCpuTime() - cpu;
            System.out.println(cpu + " " + wall + " " + throttled + " " + sum);
            manager.shutdown();
            metrics.close();
        }
    }
}
