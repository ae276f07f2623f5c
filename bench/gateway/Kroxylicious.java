// Kroxylicious as a bench's peer: a plain proxy before one broker, bound to loopback, no filters.
// Run from source: java -cp JARS Kroxylicious.java PORT UPSTREAM_PORT [KEY CERTIFICATE], the latter for TLS to clients.

import io.kroxylicious.proxy.KafkaProxy;
import io.kroxylicious.proxy.config.ConfigParser;
import io.kroxylicious.proxy.config.PluginFactory;
import io.kroxylicious.proxy.config.PluginFactoryRegistry;
import io.kroxylicious.proxy.internal.config.Features;
import io.kroxylicious.proxy.service.ClusterNetworkAddressConfigProvider;
import io.kroxylicious.proxy.service.ClusterNetworkAddressConfigProviderService;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.util.Optional;

public class Kroxylicious {
    public static void main(String[] args) throws Exception {
        String yaml = """
            virtualClusters:
              - name: bench
                targetCluster: {bootstrapServers: "127.0.0.1:%s"}
                clusterNetworkAddressConfigProvider:
                  type: PortPerBrokerClusterNetworkAddressConfigProvider
                  config: {bootstrapAddress: "127.0.0.1:%s"}
            """.formatted(args[1], args[0]);
        if (args.length > 2) {
            yaml += """
                tls: {key: {privateKeyFile: "%s", certificateFile: "%s"}}
            """.formatted(args[2], args[3]);
        }
        ConfigParser parser = new ConfigParser();
        var configuration = parser.parseConfiguration(yaml);
        try (KafkaProxy proxy = new KafkaProxy(new Loopback(parser), configuration, Features.defaultFeatures())) {
            proxy.startup();
            System.out.println("ready");
            proxy.block();
        }
    }

    /** Its address providers, made to bind to loopback only. */
    private record Loopback(PluginFactoryRegistry inner) implements PluginFactoryRegistry {
        @Override
        @SuppressWarnings("unchecked")
        public <P> PluginFactory<P> pluginFactory(Class<P> type) {
            PluginFactory<P> factory = inner.pluginFactory(type);
            if (type != (Class<?>) ClusterNetworkAddressConfigProviderService.class) {
                return factory;
            }
            return new PluginFactory<P>() {
                @Override
                public P pluginInstance(String name) {
                    var service = (ClusterNetworkAddressConfigProviderService<Object>) factory.pluginInstance(name);
                    ClusterNetworkAddressConfigProviderService<Object> bound = config -> onLoopback(service.build(config));
                    return (P) bound;
                }

                @Override
                public Class<?> configType(String name) {
                    return factory.configType(name);
                }
            };
        }
    }

    private static ClusterNetworkAddressConfigProvider onLoopback(ClusterNetworkAddressConfigProvider inner) {
        return (ClusterNetworkAddressConfigProvider) Proxy.newProxyInstance(
            Kroxylicious.class.getClassLoader(),
            new Class<?>[] {ClusterNetworkAddressConfigProvider.class},
            (self, method, arguments) -> {
                if (method.getName().equals("getBindAddress")) {
                    return Optional.of("127.0.0.1");
                }
                try {
                    return method.invoke(inner, arguments);
                } catch (InvocationTargetException error) {
                    throw error.getCause();
                }
            });
    }
}
