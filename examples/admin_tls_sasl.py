"""
Connect with TLS and SCRAM, by the names Kafka's own clients use.

    python examples/admin_tls_sasl.py broker.example:9093 ca.pem alice alice-secret
"""

import sys

from headgate.admin import AdminClient, FilterComponent, MatchType


def main(servers: str, authority: str, user: str, password: str) -> None:
    config = {
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": authority,
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required "
            f'username="{user}" password="{password}";'
        ),
    }
    with AdminClient(servers, config=config) as admin:
        # The released filters: every user-level quota, the default user's included.
        any_user = [FilterComponent("user", MatchType.ANY)]
        found = admin.describe_client_quotas(any_user, strict=True).entities().result()
        for entity, values in sorted(found.items()):
            print(entity, {str(key): value for key, value in values.items()})


if __name__ == "__main__":
    main(*sys.argv[1:])
