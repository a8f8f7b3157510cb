"""What a Kafka broker needs to be reached by TLS and a password only, with a certificate made for it: for tests of such brokers."""

from __future__ import annotations

import secrets
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlencode

from hotspare.base.errors import ClusterError
from hotspare.runners.spark.jre import find_java

_LISTENER = "SASL_SSL"
_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


@dataclass(frozen=True, slots=True)
class Secured:
    """One name and password, for clients and brokers alike. `certificate` is what clients have to trust."""

    username: str
    password: str = field(repr=False)
    key_store: Path
    certificate: Path

    @classmethod
    def create(cls, folder: Path) -> Secured:
        """A key, a certificate for 127.0.0.1 and a password, in `folder`. ClusterError where Java's keytool is missing."""
        made = cls("hotspare", secrets.token_urlsafe(), folder / "broker.p12", folder / "broker.pem")
        store = ["-keystore", str(made.key_store), "-storetype", "PKCS12", "-storepass", made.password, "-alias", "broker"]
        subject = ["-dname", "CN=127.0.0.1", "-ext", "SAN=IP:127.0.0.1", "-validity", "2"]
        _keytool("-genkeypair", "-keyalg", "RSA", "-keysize", "2048", *subject, *store)
        _keytool("-exportcert", "-rfc", "-file", str(made.certificate), *store)
        return made

    @property
    def listener(self) -> str:
        return _LISTENER

    def broker_settings(self) -> dict[str, str]:
        """Lines of `server.properties`."""
        login = f'{_MODULE} required username="{self.username}" password="{self.password}" user_{self.username}="{self.password}";'
        return {
            "listener.security.protocol.map": f"CONTROLLER:PLAINTEXT,{_LISTENER}:{_LISTENER}",
            "inter.broker.listener.name": _LISTENER,
            "sasl.enabled.mechanisms": "PLAIN",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            f"listener.name.{_LISTENER.lower()}.plain.sasl.jaas.config": login,
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": str(self.key_store),
            "ssl.keystore.password": self.password,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.certificate),
        }

    def client_options(self) -> dict[str, str]:
        """As librdkafka names them."""
        return {
            "security.protocol": _LISTENER,
            "sasl.mechanism": "PLAIN",
            "sasl.username": self.username,
            "sasl.password": self.password,
            "ssl.ca.location": str(self.certificate),
        }

    def query(self) -> str:
        """The same as the query of a bus's URL."""
        return urlencode(self.client_options())


def _keytool(*arguments: str) -> None:
    tool = find_java().parent / "keytool"
    try:
        subprocess.run([str(tool), *arguments], capture_output=True, text=True, timeout=60, check=True)  # noqa: S603 - our own command
    except FileNotFoundError as error:
        raise ClusterError("this java has no keytool, so no certificate can be made", detail=str(tool)) from error
    except subprocess.CalledProcessError as error:
        raise ClusterError("a certificate could not be made", detail=f"keytool ended with {error.returncode}") from None
