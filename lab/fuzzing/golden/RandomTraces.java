import java.io.FileOutputStream;
import java.io.OutputStreamWriter;
import java.io.PrintWriter;
import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.net.InetAddress;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import kafka.network.ConnectionQuotas;
import kafka.server.ClientRequestQuotaManager;
import kafka.server.KafkaConfig;
import org.apache.kafka.common.errors.ThrottlingQuotaExceededException;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.Quota;
import org.apache.kafka.common.metrics.stats.Rate;
import org.apache.kafka.common.metrics.stats.TokenBucket;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.utils.Sanitizer;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.common.utils.Timer;
import org.apache.kafka.network.Session;
import org.apache.kafka.server.config.ClientQuotaManagerConfig;
import org.apache.kafka.server.quota.ClientQuotaCallback;
import org.apache.kafka.server.quota.ClientQuotaEntity.ConfigEntity;
import org.apache.kafka.server.quota.ClientQuotaManager;
import org.apache.kafka.server.quota.ClientQuotaType;
import org.apache.kafka.server.quota.ControllerMutationQuota;
import org.apache.kafka.server.quota.ControllerMutationQuotaManager;
import org.apache.kafka.server.quota.QuotaType;

/**
 * Random traces with Kafka's own answers, in the format of tests/data/golden.
 *
 * Arguments: folder, first seed, how many seeds. A seed gives one file: a bare stat, a manager of
 * one of the four client quota types, or connection quotas; window shapes, names, clocks that step
 * back, idle hours, changes and removals of quotas are all drawn from it.
 */
public final class RandomTraces {
    static final String[] USERS = {
        "alice", "bob", "CN=x, O=*", "<default>", "a+b", "\u00fc", "ANONYMOUS", "b%3A", ""};
    static final String[] CLIENTS = {"c1", "c2", "", "<default>", "a:b", "x y", "\u00e9"};
    static final int EVENTS = 1500;

    final Random random;
    final PrintWriter out;
    final Clock clock = new Clock();

    RandomTraces(String file, long seed) throws Exception {
        random = new Random(seed * 104729L);
        out = new PrintWriter(
            new OutputStreamWriter(new FileOutputStream(file), StandardCharsets.UTF_8));
    }

    public static void main(String[] args) throws Exception {
        long first = Long.parseLong(args[1]);
        for (long seed = first; seed < first + Long.parseLong(args[2]); seed++) {
            RandomTraces traces = new RandomTraces(args[0] + "/" + seed + ".jsonl", seed);
            switch ((int) (seed % 4)) {
                case 0 -> traces.stat();
                case 1 -> traces.connections();
                default -> traces.clientQuota();
            }
            traces.out.close();
        }
    }

    static final class Clock implements Time {
        long now;

        public long milliseconds() {
            return now;
        }

        public long hiResClockMs() {
            return now;
        }

        public long nanoseconds() {
            return now * 1_000_000L;
        }

        public void sleep(long ms) {
        }

        public void waitObject(Object o, Supplier<Boolean> condition, long deadline) {
        }

        public Timer timer(long ms) {
            return Time.SYSTEM.timer(ms);
        }

        public <T> T waitForFuture(CompletableFuture<T> future, long deadline) {
            return null;
        }
    }

    static String number(double x) {
        return Double.isNaN(x) || Double.isInfinite(x) ? "\"" + x + "\"" : Double.toString(x);
    }

    static String text(String s) {
        return "\"" + s.replace("\\", "\\\\").replace("\"", "\\\"") + "\"";
    }

    boolean oneIn(int n) {
        return random.nextInt(n) == 0;
    }

    void line(long t, String op, String input, String answer) {
        out.println("{\"t\":" + t + ",\"op\":\"" + op + "\"" + input + ",\"o\":{" + answer + "}}");
    }

    // -- bare stats

    void stat() {
        boolean bucket = oneIn(3);
        int n = 1 + random.nextInt(random.nextBoolean() ? 4 : 40);
        long window = oneIn(4) ? 1 + random.nextInt(10) : 1 + random.nextInt(5000);
        double quota = Math.exp(random.nextGaussian() * 8);
        MetricConfig config = config(n, window, quota);
        Rate rate = new Rate();
        TokenBucket tokens = new TokenBucket();
        out.println("{\"kind\":\"stat\",\"stat\":\"" + (bucket ? "token_bucket" : "rate")
            + "\",\"num_samples\":" + n + ",\"window_ms\":" + window
            + (bucket ? ",\"quota\":" + number(quota) : "") + ",\"kafka\":\"4.3.1\"}");
        long t = oneIn(3) ? 0 : 1_700_000_000_000L + random.nextInt(100_000);
        boolean whole = random.nextBoolean();
        int back = oneIn(3) ? (int) (window * 3) : random.nextInt(20);
        for (int i = 0; i < EVENTS; i++) {
            int kind = random.nextInt(40);
            t += kind == 0 ? (long) (window * n * 2 * random.nextDouble())
                : kind < 20 ? random.nextInt(3) : (long) (window * 0.7 * random.nextDouble());
            if (oneIn(6))
                t -= random.nextInt(back + 1);
            if (oneIn(60)) {
                StringBuilder changes = new StringBuilder();
                if (random.nextBoolean())
                    changes.append(",\"num_samples\":").append(n = 1 + random.nextInt(20));
                if (random.nextBoolean())
                    changes.append(",\"window_ms\":").append(window = 1 + random.nextInt(3000));
                if (bucket && random.nextBoolean()) {
                    quota = Math.exp(random.nextGaussian() * 4);
                    changes.append(",\"quota\":").append(number(quota));
                }
                config = config(n, window, quota);
                line(t, "config", changes.toString(), "");
                continue;
            }
            String input = "";
            boolean record = !oneIn(5);
            if (record) {
                double v;
                if (whole || random.nextBoolean()) {
                    long amount = oneIn(50) ? random.nextLong() >> (1 + random.nextInt(40))
                        : random.nextInt(100_000) - (oneIn(5) ? 50_000 : 0);
                    input = ",\"v\":" + amount;
                    v = amount;
                } else {
                    v = oneIn(30) ? Math.exp(random.nextGaussian() * 100)
                        : random.nextGaussian() * 1e4;
                    input = ",\"v\":" + number(v);
                }
                if (bucket)
                    tokens.record(config, v, t);
                else
                    rate.record(config, v, t);
                if (oneIn(3)) {
                    line(t, "rec", input + ",\"m\":false", "");
                    continue;
                }
            }
            String answer = "\"value\":"
                + number(bucket ? tokens.measure(config, t) : rate.measure(config, t))
                + (bucket ? "" : ",\"win\":" + rate.windowSize(config, t));
            line(t, record ? "rec" : "measure", input, answer);
        }
    }

    static MetricConfig config(int n, long windowMs, double quota) {
        return new MetricConfig().samples(n).timeWindow(windowMs, TimeUnit.MILLISECONDS)
            .quota(Quota.upperBound(quota));
    }

    // -- managers

    long tick;
    Runnable expire;

    Metrics metrics(long start) throws Exception {
        clock.now = start;
        Metrics metrics = new Metrics(new MetricConfig(), new ArrayList<>(), clock, false);
        Constructor<?> task = Class.forName("org.apache.kafka.common.metrics.Metrics$ExpireSensorTask")
            .getDeclaredConstructor(Metrics.class);
        task.setAccessible(true);
        expire = (Runnable) task.newInstance(metrics);
        tick = start + 30_000;
        return metrics;
    }

    void advance(long t) {
        for (; tick <= t; tick += 30_000) {
            clock.now = tick;
            expire.run();
        }
        clock.now = t;
    }

    void clientQuota() throws Exception {
        String[] types = {"produce", "fetch", "request", "controller_mutation"};
        String[] groups = {"Produce", "Fetch", "Request", "ControllerMutation"};
        String[] names = {"byte-rate", "byte-rate", "request-time", "tokens"};
        int type = random.nextInt(4);
        int n = 1 + random.nextInt(random.nextBoolean() ? 3 : 30);
        int seconds = 1 + random.nextInt(random.nextBoolean() ? 1 : 20);
        long start = 1_700_000_000_000L + random.nextInt(100_000);
        Metrics metrics = metrics(start);
        ClientQuotaManagerConfig config = new ClientQuotaManagerConfig(n, seconds);
        ClientQuotaManager manager = switch (type) {
            case 2 -> new ClientRequestQuotaManager(config, metrics, clock, "x", Optional.empty());
            case 3 -> new ControllerMutationQuotaManager(
                config, metrics, clock, "x", Optional.empty());
            default -> new ClientQuotaManager(
                config, metrics, type == 1 ? QuotaType.FETCH : QuotaType.PRODUCE, clock, "x");
        };
        Field callbackField = ClientQuotaManager.class.getDeclaredField("quotaCallback");
        callbackField.setAccessible(true);
        ClientQuotaCallback callback = (ClientQuotaCallback) callbackField.get(manager);
        out.println("{\"kind\":\"client_quota\",\"type\":\"" + types[type] + "\",\"num_samples\":"
            + n + ",\"window_s\":" + seconds + ",\"start_ms\":" + start
            + ",\"expiry_period_ms\":30000,\"kafka\":\"4.3.1\"}");
        int levels = random.nextInt(4);
        int users = 1 + random.nextInt(USERS.length);
        int clients = 1 + random.nextInt(CLIENTS.length);
        boolean idle = oneIn(3);
        int back = oneIn(3) ? 15 : 0;
        long t = start;
        for (int i = 0; i < EVENTS; i++) {
            t += oneIn(25) ? (long) (seconds * 1000 * n * 1.5 * random.nextDouble())
                : oneIn(3) ? random.nextInt(seconds * 900) : random.nextInt(20);
            if (idle && oneIn(80))
                t += 3_550_000L + random.nextInt(120_000);
            long at = back > 0 && oneIn(4) ? Math.max(start, t - random.nextInt(back)) : t;
            advance(at);
            String user = USERS[random.nextInt(users)];
            String client = CLIENTS[random.nextInt(clients)];
            if (oneIn(25) || i == 0) {
                changeQuota(manager, at, levels < 3 ? levels : random.nextInt(3), user, client, type);
                continue;
            }
            Session session = new Session(
                new KafkaPrincipal("User", user), InetAddress.getLoopbackAddress());
            boolean charged = manager.quotasEnabled();
            boolean measured = oneIn(5);
            String input = ",\"u\":" + text(user) + ",\"c\":" + text(client);
            String answer = "";
            String op;
            long amount = oneIn(30) ? Math.abs(random.nextLong() >> (1 + random.nextInt(40)))
                : random.nextInt(20_000);
            double v = amount;
            String value = ",\"v\":" + amount;
            if (type == 2) {
                amount = random.nextInt(200_000_000);
                v = amount * (100.0 / 1_000_000_000);
                value = ",\"ns\":" + amount;
            } else if (type == 3) {
                v = amount = 1 + random.nextInt(60);
                value = ",\"v\":" + amount;
            }
            int choice = random.nextInt(12);
            if (type == 3 && choice < 7) {
                op = choice < 4 ? "strict" : "permissive";
                ControllerMutationQuotaManager mutations = (ControllerMutationQuotaManager) manager;
                ControllerMutationQuota quota = choice < 4 ? mutations.newStrictQuotaFor(session, client)
                    : mutations.newPermissiveQuotaFor(session, client);
                List<String> amounts = new ArrayList<>();
                List<String> rejected = new ArrayList<>();
                for (int k = random.nextInt(5); k > 0; k--) {
                    int permits = 1 + random.nextInt(60);
                    amounts.add("" + permits);
                    try {
                        quota.record(permits);
                        rejected.add("false");
                    } catch (ThrottlingQuotaExceededException refused) {
                        rejected.add("true");
                    }
                }
                value = ",\"vs\":[" + String.join(",", amounts) + "]";
                answer = "\"ms\":" + quota.throttleTime() + ",\"exceeded\":" + quota.isExceeded()
                    + ",\"rejected\":[" + String.join(",", rejected) + "],";
            } else if (choice < 8 || type == 3 && choice < 11) {
                op = "rec";
                answer = "\"ms\":"
                    + manager.maybeRecordAndGetThrottleTimeMs(session, client, v, at) + ",";
            } else if (choice == 8) {
                op = "unrec";
                manager.unrecordQuotaSensor(session, client, v, at);
                charged = true;
            } else if (choice == 9) {
                op = "max";
                answer = "\"max\":" + number(manager.maxValueInQuotaWindow(session, client)) + ",";
                value = "";
            } else if (choice == 10) {
                op = "norec";
                if (charged)
                    manager.recordNoThrottle(session, client, v);
            } else {
                op = "measure";
                value = "";
                measured = true;
            }
            String tags = "\"tu\":null,\"tc\":null";
            if (charged) {
                ClientQuotaType quotaType = switch (type) {
                    case 0 -> ClientQuotaType.PRODUCE;
                    case 1 -> ClientQuotaType.FETCH;
                    case 2 -> ClientQuotaType.REQUEST;
                    default -> ClientQuotaType.CONTROLLER_MUTATION;
                };
                Map<String, String> tag = callback.quotaMetricTags(
                    quotaType, session.principal, client);
                tags = "\"tu\":" + text(tag.get("user")) + ",\"tc\":" + text(tag.get("client-id"));
                KafkaMetric metric = metrics.metric(
                    metrics.metricName(names[type], groups[type], "", tag));
                if (metric != null) {
                    tags += ",\"q\":" + number(metric.config().quota().bound());
                    if (measured && type == 3)
                        tags += ",\"rate\":" + number(metric.measurable().measure(metric.config(), at));
                    else if (measured) {
                        Rate rate = (Rate) metric.measurable();
                        tags += ",\"rate\":" + number(rate.measure(metric.config(), at))
                            + ",\"win\":" + rate.windowSize(metric.config(), at);
                    }
                }
            }
            String asked = measured && !op.equals("measure") ? ",\"m\":true" : "";
            line(at, op, input + value + asked, answer + tags);
        }
        manager.shutdown();
        metrics.close();
    }

    void changeQuota(
        ClientQuotaManager manager, long t, int level, String user, String client, int type
    ) {
        Optional<ConfigEntity> userEntity = Optional.empty();
        Optional<ConfigEntity> clientEntity = Optional.empty();
        List<String> names = new ArrayList<>();
        if (level != 0 && !user.isEmpty()) {
            boolean any = oneIn(3);
            names.add("\"user\":" + (any ? "null" : text(user)));
            userEntity = Optional.of(any ? ClientQuotaManager.DEFAULT_USER_ENTITY
                : new ClientQuotaManager.UserEntity(Sanitizer.sanitize(user)));
        }
        if (level != 1 && !client.isEmpty()) {
            boolean any = oneIn(3);
            names.add("\"client\":" + (any ? "null" : text(client)));
            clientEntity = Optional.of(any ? ClientQuotaManager.DEFAULT_USER_CLIENT_ID
                : new ClientQuotaManager.ClientIdEntity(client));
        }
        if (names.isEmpty())
            return;
        double bound = random.nextBoolean() ? 1 + random.nextInt(type < 2 ? 100_000 : 20)
            : Math.exp(random.nextGaussian() * (type < 2 ? 6 : 2));
        boolean remove = oneIn(3);
        manager.updateQuota(userEntity, clientEntity,
            remove ? Optional.empty() : Optional.of(Quota.upperBound(bound)));
        line(t, "quota", ",\"entity\":{" + String.join(",", names) + "},\"value\":"
            + (remove ? "null" : number(bound)), "\"flags\":" + manager.quotaTypesEnabled());
    }

    // -- connections

    void connections() throws Exception {
        int n = 1 + random.nextInt(random.nextBoolean() ? 3 : 20);
        int seconds = 1 + random.nextInt(random.nextBoolean() ? 1 : 8);
        String[] listeners = oneIn(3) ? new String[] {"INTERNAL"}
            : oneIn(2) ? new String[] {"EXTERNAL", "INTERNAL"}
            : new String[] {"EXTERNAL", "INTERNAL", "THIRD"};
        Map<String, String> limits = new HashMap<>();
        if (random.nextBoolean())
            limits.put("max.connection.creation.rate", "" + random.nextInt(40));
        if (random.nextBoolean())
            limits.put("listener.name." + listeners[0].toLowerCase()
                + ".max.connection.creation.rate", "" + random.nextInt(30));
        Properties properties = new Properties();
        properties.put("process.roles", "broker");
        properties.put("node.id", "1");
        properties.put("controller.quorum.voters", "2@localhost:9093");
        properties.put("controller.listener.names", "CONTROLLER");
        StringBuilder ports = new StringBuilder();
        StringBuilder protocols = new StringBuilder("CONTROLLER:PLAINTEXT");
        int port = 20_000;
        for (String name : listeners) {
            ports.append(ports.length() > 0 ? "," : "").append(name).append("://localhost:" + port++);
            protocols.append(",").append(name).append(":PLAINTEXT");
        }
        properties.put("listeners", ports.toString());
        properties.put("listener.security.protocol.map", protocols.toString());
        properties.put("inter.broker.listener.name", "INTERNAL");
        properties.put("quota.window.num", "" + n);
        properties.put("quota.window.size.seconds", "" + seconds);
        properties.putAll(limits);
        long start = 1_700_000_000_000L + random.nextInt(100_000);
        Metrics metrics = metrics(start);
        KafkaConfig config = KafkaConfig.fromProps(properties, false);
        ConnectionQuotas quotas = new ConnectionQuotas(config, clock, metrics);
        for (String name : listeners)
            quotas.addListener(config, new ListenerName(name));
        Method slot = ConnectionQuotas.class.getDeclaredMethod(
            "recordConnectionAndGetThrottleTimeMs", ListenerName.class, long.class);
        Method address = ConnectionQuotas.class.getDeclaredMethod(
            "recordIpConnectionMaybeThrottle", ListenerName.class, InetAddress.class);
        slot.setAccessible(true);
        address.setAccessible(true);
        List<String> names = new ArrayList<>();
        for (String name : listeners)
            names.add(text(name));
        List<String> settings = new ArrayList<>();
        limits.forEach((key, value) -> settings.add(text(key) + ":" + text(value)));
        out.println("{\"kind\":\"connection\",\"num_samples\":" + n + ",\"window_s\":" + seconds
            + ",\"start_ms\":" + start + ",\"expiry_period_ms\":30000,\"listeners\":["
            + String.join(",", names) + "],\"inter_broker_listener\":\"INTERNAL\",\"config\":{"
            + String.join(",", settings) + "},\"kafka\":\"4.3.1\"}");
        boolean idle = oneIn(3);
        long t = start;
        for (int i = 0; i < EVENTS; i++) {
            t += oneIn(25) ? random.nextInt(seconds * 1000 * n) : random.nextInt(60);
            if (idle && oneIn(80))
                t += 3_550_000L + random.nextInt(120_000);
            advance(t);
            String ip = "10.0.0." + (1 + random.nextInt(4));
            if (oneIn(25)) {
                boolean all = oneIn(3);
                boolean remove = oneIn(3);
                int rate = random.nextInt(25);
                quotas.updateIpConnectionRateQuota(
                    all ? scala.Option.empty() : scala.Option.apply(InetAddress.getByName(ip)),
                    remove ? scala.Option.empty() : scala.Option.apply((Object) rate));
                line(t, "ip_rate", ",\"ip\":" + (all ? "null" : text(ip)) + ",\"value\":"
                    + (remove ? "null" : rate), "");
                continue;
            }
            if (oneIn(100)) {
                int rate = random.nextInt(60);
                quotas.updateBrokerMaxConnectionRate(rate);
                line(t, "broker_rate", ",\"value\":" + rate, "");
                continue;
            }
            ListenerName listener = new ListenerName(listeners[random.nextInt(listeners.length)]);
            String where = ",\"l\":" + text(listener.value());
            long wait = (long) slot.invoke(quotas, listener, t);
            line(t, "slot", where, "\"ms\":" + wait);
            t += wait;
            advance(t);
            long refused = 0;
            try {
                address.invoke(quotas, listener, InetAddress.getByName(ip));
            } catch (InvocationTargetException thrown) {
                Field ms = thrown.getCause().getClass().getDeclaredField("throttleTimeMs");
                ms.setAccessible(true);
                refused = (long) ms.get(thrown.getCause());
            }
            line(t, "ip", where + ",\"ip\":" + text(ip), "\"ms\":" + refused);
        }
        metrics.close();
    }
}
