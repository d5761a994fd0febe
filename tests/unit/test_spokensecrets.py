"""Secrets as programs that run commands say them: what goes, what merely looks like it and stays, and which rules older recordings have."""

from __future__ import annotations

import json
import random
import string
import time
from typing import Any

import pytest

from agentloupe.engine.privacy import Rules, StreamScrubber, rules_from, scrub, scrub_text

RULES, OLDER = Rules(), Rules(built_in="loupe-s2")
WORD = "Kx7pLq2Zt9"

LINES = [
    ("curl -u me:{} https://x.invalid/a", "password"),
    ("curl -sS -u 'me:{}' https://x.invalid/a", "password"),
    ('curl -u "me:{}" https://x.invalid/a', "password"),
    ("curl -sume:{} 'https://x.invalid/a?b=1&c=2'", "password"),
    ("curl 'https://x.invalid/a?b=1&c=2' --user=me:{}", "password"),
    ("curl -X POST \\\n  -H 'Accept: a' \\\n  -u me:{} \\\n  https://x.invalid", "password"),
    ("curl --proxy-user me:{} https://x.invalid/a", "password"),
    ("wget --user=me --password {} https://x.invalid", "password"),
    ("wget --http-password=opensesame https://x.invalid", "password"),
    ("docker exec db mysql -u root -p{} -e 'select 1'", "password"),
    ("mysqldump -uroot -p'{}' app", "password"),
    ("sshpass -p {} ssh me@host", "password"),
    ("sshpass -p'{}' ssh me@host", "password"),
    ("docker login -u me -p {} registry.invalid", "password"),
    ("docker login --username me --password {}", "password"),
    ("helm registry login -u me -p {} r.invalid", "password"),
    ("echo {} | docker login -u me --password-stdin", "password"),
    ("echo '{}' | sudo -S apt-get update", "password"),
    ("redis-cli -a {} ping", "password"),
    ("mongosh -u root -p {} --authenticationDatabase admin", "password"),
    ("ldapsearch -x -D cn=admin -w {} -b dc=x", "password"),
    ("smbclient //h/s -U me%{}", "password"),
    ("sqlcmd -S h -U sa -P {} -Q 'select 1'", "password"),
    ("twine upload -u __token__ -p {} dist/*", "password"),
    ("unzip -P {} a.zip", "password"),
    ("openssl rsa -in a.pem -passin pass:{}", "password"),
    ("sqlplus me/{}@db", "password"),
    ("jdbc:oracle:thin:me/{}@h:1521:x", "password"),
    ("gh secret set X_TOKEN --body {}", "password"),
    ("kubectl --token {} get pods", "token"),
    ("mycli --api-key '{}' run", "api-key"),
    ("mycli --client-secret {} run", "secret"),
    ("PGPASSWORD=opensesame psql -h db", "secret"),
    ("export X_TOKEN=opensesame", "token"),
    ("docker run -e DB_PASSWORD=opensesame img", "password"),
    ("kubectl create secret generic a --from-literal=password=opensesame", "password"),
    ("psql 'user=me password=opensesame dbname=x'", "password"),
    ("setenv X_TOKEN {}", "token"),
    ("ENV API_KEY {}", "api-key"),
    ("aws configure set aws_secret_access_key {}/abc+def", "api-key"),
    ("machine api.invalid login me password {}", "password"),
    ("machine api.invalid\n  login me\n  password opensesame\n", "password"),
    ("//registry.invalid/:_authToken={}", "token"),
    ("npm config set //registry.invalid/:_authToken {}", "token"),
    ("git clone https://a1b2c3d4e5{}f6g7h8@git.invalid/a.git", "url-userinfo"),
    ("<password>{}</password>", "password"),
    ('<add key="ApiKey" value="{}" />', "api-key"),
]


@pytest.mark.parametrize(("line", "rule"), LINES)
@pytest.mark.parametrize("frame", ["{}", "I ran it:\n$ {}\nand it worked.", "set -e; {}"])
def test_secrets_of_commands_and_files_go(line: str, rule: str, frame: str) -> None:
    text = frame.format(line.format(WORD))
    clean = scrub_text(text, RULES)
    assert WORD not in clean
    assert "opensesame" not in clean
    assert f"[removed:{rule}]" in clean
    assert scrub_text(clean, RULES) == clean
    assert WORD in scrub_text(text, OLDER) or "opensesame" in scrub_text(text, OLDER), "older rules stay what they were"


@pytest.mark.parametrize(("line", "rule"), LINES)
def test_they_go_from_the_arguments_of_tools_which_stay_json(line: str, rule: str) -> None:
    arguments = json.dumps({"command": line.format(WORD), "timeout": 5})
    message: Any = {"role": "assistant", "tool_calls": [{"function": {"name": "bash", "arguments": arguments}}]}
    clean: Any = scrub(message, RULES).value
    assert WORD not in json.dumps(clean)
    again = json.loads(clean["tool_calls"][0]["function"]["arguments"])
    assert again == {"command": scrub_text(line.format(WORD), RULES), "timeout": 5}


@pytest.mark.parametrize(("line", "rule"), LINES)
@pytest.mark.parametrize("size", [1, 7])
def test_they_go_from_streams_however_they_are_cut(line: str, rule: str, size: int) -> None:
    text = f"{'all is well ' * 60}{line.format(WORD)} and {'so on ' * 60}"
    parts = [text[at : at + size] for at in range(0, len(text), size)]
    stream = StreamScrubber(RULES)
    made = [
        piece
        for at, part in enumerate(parts)
        for piece in stream.feed([(float(at), f"data: {json.dumps({'delta': part})}\n\n".encode())])
    ]
    said = b"".join(content for _, content in [*made, *stream.end()]).decode()
    assert "".join(json.loads(line[6:])["delta"] for line in said.split("\n\n") if line) == scrub_text(text, RULES)


def test_logins_of_registries_and_keys_of_clusters_go_and_certificates_stay() -> None:
    auth = '{"auths": {"r.invalid": {"auth": "bWU6S3g3cExxMlp0OQ=="}}}'
    assert scrub_text(auth, RULES) == auth.replace("bWU6S3g3cExxMlp0OQ==", "[removed:authorization]")
    key = "LS0tLS1CRUdJTiBSU0EgUFJJVkFURSBLRVktLS0tLQpNSUlFb3dJQkFBS0NBUUVBMFo5"
    certificate = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCk1JSURCVENDQWUyZ0F3SUJBZ0lJ"
    text = "certificate-authority-data: {}\n    client-key-data: {}\n"
    assert scrub_text(text.format(certificate, key), RULES) == text.format(certificate, "[removed:private-key]")


@pytest.mark.parametrize(
    "text",
    [
        "curl -u user:password https://example.org",
        'curl -u "$USER:$PASS" https://example.org && mysql -p"$PASS" app',
        "curl https://x.invalid\ndocker run -u 1000:1000 img",
        "docker run --name mysql -p 3306:3306 -p3307:3306 mysql",
        "mkdir -p /var/lib/mysql && ps -p 1234",
        "mysql -u root -p app < dump1.sql",
        "the --token flag is deprecated, use --api-key instead; --password PASSWORD, --token $TOKEN, --token <token1>",
        "--password-stdin --password-file /run/secrets/db1 --credentials creds1.json",
        "parser.add_argument('--token', default='x1')",
        "export API_KEY=your_api_key",
        'API_KEY=settings.API_KEY; TOKEN=os.environ["TOKEN"]; SECRET_KEY=get_secret()',
        "MAX_TOKENS=many PASSWORD=password SECRET=secret make",
        "machine learning needs a login and a password today",
        "<password>string</password><token>{{ token }}</token>",
        "docker build --secret id=npmrc1,src=.npmrc .",
        "tar -xzp file1 && ssh -p 2222 host && cp -pr a1 b1 && psql -p 5432",
        "git push -u origin:feature1; git log -p abc1234def",
        '"auth": "required" and "auth": "bearer" and "auth": "c2VjcmV0"',
        "https://user@host.invalid/a ssh://git@github.com/a.git https://a-very-long-user-name@host/x",
        "helm install app1 -p values1.yaml; docker login registry1.invalid",
        "git config set core.editor vim1; ENV PATH /usr/bin1",
        "curl -u me:… https://x.invalid; npm config set //r.invalid/:_authToken NPM_TOKEN; obj:_auth your_token",
        "a.py,sha256=qaN-fw_htIgKUVXoAuAEVgKxQu3tZ9qE2eiKkWIS7LA,160",
        "dapi0123 glrt-short secret_santa pul-lover sha256~x vcp_1 fw_version",
    ],
)
def test_what_only_looks_like_it_stays(text: str) -> None:
    assert scrub_text(text, RULES) == text
    assert scrub({"arguments": json.dumps({"command": text})}, RULES).removed == ()


def _drawn(prefix: str, length: int, of: str = string.ascii_letters + string.digits) -> str:
    """A made-up key, put together here so that no scanner takes this file for a leak."""
    return prefix + "1a2" + "".join(random.Random(prefix).choices(of, k=length - 3))


HEX = "0123456789abcdef"
KEYS = {
    "openai project": _drawn("sk-" + "proj-", 60),
    "openai service": _drawn("sk-" + "svcacct-", 60),
    "openai admin": _drawn("sk-" + "admin-", 60),
    "anthropic admin": _drawn("sk-" + "ant-admin01-", 60),
    "openrouter": _drawn("sk-" + "or-v1-", 64, HEX),
    "langfuse": "sk-" + "lf-12345678-1234-1234-1234-123456789012",
    "hugging face": _drawn("h" + "f_", 34),
    "hugging face org": _drawn("api_" + "org_", 34),
    "groq": _drawn("gs" + "k_", 50),
    "xai": _drawn("xa" + "i-", 80),
    "google oauth": _drawn("ya" + "29.", 60),
    "google refresh": _drawn("1/" + "/0", 60),
    "supabase": _drawn("sb_" + "secret_", 31),
    "vercel": _drawn("vc" + "p_", 56),
    "gitlab runner": _drawn("gl" + "rt-", 20),
    "gitlab deploy": _drawn("gl" + "dt-", 20),
    "gitlab job": _drawn("gl" + "cbt-64_", 20),
    "databricks": _drawn("da" + "pi", 32, HEX),
    "notion": _drawn("nt" + "n_", 46),
    "notion, older": _drawn("sec" + "ret_", 43),
    "linear": _drawn("lin_" + "api_", 40),
    "linear oauth": _drawn("lin_" + "oauth_", 64, HEX),
    "telegram, long": "12345678901:" + _drawn("A" + "A", 34),
    "cloudflare": _drawn("cf" + "ut_", 48),
    "planetscale": _drawn("pscale_" + "tkn_", 43),
    "atlassian": _drawn("ATA" + "TT3", 180),
    "fireworks": _drawn("f" + "w_", 22),
    "bedrock": _drawn("AB" + "SK", 120),
    "azure client": "aB3" + "8Q~" + _drawn("x", 33),
    "npm": _drawn("np" + "m_", 36),
    "package index": _drawn("p" + "ypi-AgE", 60),
    "stripe org": _drawn("sk_" + "org_live_", 40),
}


@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS.keys())
@pytest.mark.parametrize("frame", ["{}", "it is {}, he said", 'x = "{}"', "a\n{}\nb"])
def test_keys_of_issuers_go(key: str, frame: str) -> None:
    assert scrub_text(frame.format(key), RULES) == frame.format("[removed:key]")


LONG = _drawn("IQoJ", 2300)


@pytest.mark.parametrize(
    "line",
    [
        "docker login -u AWS -p {} https://1.dkr.invalid",
        "docker login -u AWS -p '{}' https://1.dkr.invalid",
        "echo {} | docker login -u AWS --password-stdin r.invalid",
        "curl -u me:{} https://x.invalid",
        "curl -u 'me:{}' https://x.invalid",
        "mycli --session-token {} run",
        "aws configure set aws_session_token '{}'",
        'export AWS_SESSION_TOKEN="{}"',
        "<SessionToken>{}</SessionToken>",
        '<add key="SessionToken" value="{}" />',
    ],
)
def test_values_as_long_as_those_of_aws_go_to_their_end(line: str) -> None:
    clean = scrub_text(line.format(LONG), RULES)
    assert len(clean) < len(line) + 30
    assert LONG[-20:] not in clean
    arguments = scrub({"arguments": json.dumps({"command": line.format(LONG)})}, RULES).value
    assert LONG[-20:] not in json.dumps(arguments)


def test_long_values_under_other_names_stay() -> None:
    line = f'IMAGE="{LONG}" MAX_TOKENS="{LONG}"'
    assert scrub_text(line, RULES) == line


def test_older_recordings_are_compared_by_the_rules_that_they_were_made_under() -> None:
    line = f"curl -u me:{WORD} https://x.invalid"
    for name in ("loupe-s1", "loupe-s2"):
        older = rules_from({"built_in": name, "fields": [], "keep": [], "patterns": {}})
        assert scrub_text(line, older) == line
        assert older.digest != RULES.digest
    assert RULES.as_json()["built_in"] == "loupe-s3"


def test_the_address_of_a_telegram_bot_loses_its_token() -> None:
    token = "1234567890:" + _drawn("A" + "A", 35)
    assert scrub_text(f"GET https://api.telegram.org/bot{token}/getMe", RULES) == (
        "GET https://api.telegram.org/bot[removed:key]/getMe"
    )


HOSTILE = (
    *(
        "curl -u a:",
        "curl ",
        " -p1",
        " -u a:b",
        "mysql ",
        " -pass pass:",
        " -p'",
        "--token ",
        "--a=",
        "machine a login b password ",
    ),
    *("A=", "PASSWORD=", "=aaaa", "echo a | ", "<a>", "<password>", 'name="a" value=', "secret_", "gl", "Q~", "1//0"),
    *("--a='", '--a="', "TOKEN='", '="', "TOKEN=" + "a" * 600, "<password>" + "a" * 9000, "--token " + "a" * 9000),
    *("ENV A ", "config set a.", "://a1", '"auth":"', "LS0tLS1CRUdJTi", "docker login ", "\\n", ":_auth ", "_", "-"),
)


@pytest.mark.parametrize("piece", HOSTILE)
def test_hostile_texts_take_no_longer_than_long_ones(piece: str) -> None:
    start = time.process_time()
    scrub_text(piece * (150_000 // len(piece)), RULES)
    assert time.process_time() - start < 3
