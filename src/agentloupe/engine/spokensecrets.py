r"""Credentials as programs that run commands say them: flags, lines of a shell, files of settings, and newer keys of issuers.

    mysql -u root -p[removed:password]        curl -u me:[removed:password] https://...
    export PGPASSWORD=[removed:secret]        machine host login me password [removed:password]

Set `loupe-s3` has these shapes beside those of `credentials`. What stands for a secret and is none stays: `$TOKEN`, `<password>`,
`YOUR_API_KEY`, `-u user:password`, a path to a file, and bare words where prose could stand (`--token is deprecated`).
"""

from __future__ import annotations

import base64
import binascii
import re

from agentloupe.engine.credentials import ROOTS, Shape, field_rule

__all__ = ["SPOKEN", "SPOKEN_FIRST"]

_KEYS = "|".join(
    (
        r"(?:sk|rk)_org_(?:live|test)_[0-9A-Za-z]{16,}",
        r"api_org_[A-Za-z0-9]{30,}",
        r"1//0[A-Za-z0-9_-]{40,}",
        r"AQ\.Ab[A-Za-z0-9_-]{40,}",
        r"sb_secret_[A-Za-z0-9_-]{20,}",
        r"vc[pkair]_[A-Za-z0-9]{24,}",
        r"gl(?:dt|rt|rtr|cbt|ptt|ft|soat|agent|imt|ffct|oas|wt)-(?=[A-Za-z0-9_-]{0,200}\d)[A-Za-z0-9_-]{20,}",
        r"GR1348941[A-Za-z0-9_-]{20,}",
        r"dapi[0-9a-f]{32}(?:-\d)?(?![0-9A-Za-z])",
        r"secret_(?=[A-Za-z]{0,200}\d)[A-Za-z0-9]{40,}",
        r"lin_oauth_[0-9a-f]{40,}",
        r"\d{11,12}:AA[A-Za-z0-9_-]{32,}",
        r"cf(?:k|ut|at)_[A-Za-z0-9]{40,}",
        r"pscale_(?:tkn|pw|oauth)_[A-Za-z0-9_=.-]{32,}",
        r"PMAK-[0-9a-f]{24}-[0-9a-f]{34}",
        r"pul-[0-9a-f]{40}(?![0-9A-Za-z])",
        r"AT(?:ATT|CTT|BB)[A-Za-z0-9_=-]{60,}",
        r"dp\.(?:pt|st|ct|sa|scim|audit)\.[A-Za-z0-9_.-]{40,}",
        r"HRKU-[A-Za-z0-9_-]{40,}",
        r"sq0(?:csp|atp)-[A-Za-z0-9_-]{22,}",
        r"fw_(?=[A-Za-z]{0,200}\d)[A-Za-z0-9]{22,}",
        r"fm(?:1[ar]|2)_[A-Za-z0-9+/=]{60,}",
        r"ABSK[A-Za-z0-9+/]{100,}={0,2}",
        r"bedrock-api-key-[A-Za-z0-9+/=]{40,}",
        r"[A-Za-z0-9_~.]{3}\dQ~[A-Za-z0-9_~.-]{31,34}",
        r"phx_[A-Za-z0-9]{40,}",
        r"sntry[su]_[A-Za-z0-9+/=_-]{40,}",
        r"hvr\.[A-Za-z0-9_-]{24,}",
        r"glc_[A-Za-z0-9+/]{32,}={0,3}",
        r"ops_eyJ[A-Za-z0-9+/=]{200,}",
        r"xkeysib-[0-9a-f]{64}-[A-Za-z0-9]{16}",
        r"LTAI[A-Za-z0-9]{16,24}(?![0-9A-Za-z])",
        r"(?:ABIA|ACCA)[0-9A-Z]{16}(?![0-9A-Za-z])",
        r"e2b_[0-9a-f]{40}(?![0-9A-Za-z])",
        r"jina_[A-Za-z0-9_-]{50,}",
        r"pcsk_[A-Za-z0-9_]{50,}",
        r"fc-[0-9a-f]{32}(?![0-9A-Za-z])",
        r"[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_=-]{60,}",
        r"NRAK-[A-Z0-9]{27}",
        r"rpa_[A-Za-z0-9]{40,}",
        r"crsr_[0-9a-f]{60,}",
        r"wandb_v1_[A-Za-z0-9_]{60,}",
        r"sha256~[A-Za-z0-9_-]{43}",
    )
)
"""Prefixes of issuers that came later than those of `credentials`, or were not known there."""

_KEY_NEEDLES = (
    *("_org_", "1//0", "AQ.Ab", "sb_secret_", "vcp_", "vck_", "vca_", "vci_", "vcr_", "gldt-", "glrt-", "glrtr-"),
    *("glcbt-", "glptt-", "glft-", "glsoat-", "glagent-", "glimt-", "glffct-", "gloas-", "glwt-", "GR1348941", "dapi"),
    *("secret_", "lin_oauth_", "cfk_", "cfut_", "cfat_", "pscale_", "PMAK-", "pul-", "ATATT", "ATCTT", "ATBB", "dp."),
    *(
        "HRKU-",
        "sq0csp-",
        "sq0atp-",
        "fw_",
        "fm1a_",
        "fm1r_",
        "fm2_",
        "ABSK",
        "bedrock-api-key-",
        "Q~",
        "phx_",
        "sntrys_",
        "sntryu_",
        "hvr.",
        "glc_",
        "ops_eyJ",
    ),
    *(
        "xkeysib-",
        "LTAI",
        "ABIA",
        "ACCA",
        "e2b_",
        "jina_",
        "pcsk_",
        "fc-",
        ":AA",
        "atlasv1.",
        "NRAK-",
        "rpa_",
        "crsr_",
    ),
    *("wandb_v1_", "sha256~"),
)

# --- what is a secret, and what stands for one ------------------------------------------------------------------------

_LONG = 8000
"""Characters that a value has at most: session tokens and logins of AWS have more than two thousand."""
_VALUE = (
    r"(?P<w>\\*[\"'])?(?![$<{\[*%`(-])"
    rf"(?P<s>(?(w)(?:(?!(?P=w))[^\n]){{1,{_LONG}}}|[^\s\"'\\`;|&<>()]{{2,{_LONG}}}))(?(w)(?=(?P=w)))"
)
"""A word of a command line, in quotes or not, that is no variable, no placeholder in brackets and no flag."""
_STANDS_FOR_ONE = re.compile(
    r"your|example|change.?me|placeholder|dummy|redacted|insert|replace|xxx|\.\.\.|…"
    r"|^(?:none|null|nil|true|false|undefined|string|str|bytes|optional|required|pass|pw|pwd|passwd|user|text|value|key|auth)$"
)
_FILE = re.compile(r"[.~]{0,2}/|[A-Za-z]:\\|[\w.-]*\.(?:pem|key|json|ya?ml|toml|txt|crt|cert|p12|pfx|jks|env|cfg|ini)$")
_PORT = re.compile(r"[\d.:]*\d(?:/\S*)?$")


def _is_one(value: str) -> bool:
    """Whether a value is a secret and not the name of one."""
    if any(char.isdigit() for char in value):
        return True
    low = value.lower()
    return not (_STANDS_FOR_ONE.search(low) or (value in (low, value.upper()) and field_rule(value)))


# --- commands ---------------------------------------------------------------------------------------------------------

_BACK = 400
"""Characters in front of a flag in which its command stands; streams hold back more than that (`streamscrubber`)."""
_ENDS = re.compile(r"(?<!\\)(?:\n|\\n)|[;|]\s|&&")
_LOGIN = r"(?:docker|podman|nerdctl|buildah|skopeo|helm|az|oc)\s(?:\S+\s+)?login"
_FLAGS = tuple(
    (re.compile(flag), words, re.compile(rf"(?:^|[\s/\"'`(=@])(?:{command})[\s\\]"))
    for flag, words, command in (
        (r"-[a-zA-Z]{0,6}[uU]\s?|--(?:proxy-)?user[ =]", ("curl",), "curl"),
        (r"-U\s?[^\s%]{1,100}%", ("smbclient",), "smbclient"),
        (r"-[a-zA-Z]{0,3}p", ("mysql", "mariadb"), r"(?:mysql|mariadb)[\w-]*"),
        (r"-p\s?", ("sshpass", "mongo"), r"sshpass|mongo\w*"),
        (r"-p[ =]|--password[ =]", ("login", "twine"), rf"{_LOGIN}|twine"),
        (r"-a\s|--pass\s", ("redis-cli",), "redis-cli"),
        (r"-w\s", ("ldap",), r"ldap\w+"),
        (r"-P\s?", ("sqlcmd", "bcp", "zip"), "sqlcmd|bcp|zip|unzip"),
        (r"-pass(?:in|out)?\s+pass:", ("openssl",), "openssl"),
        (r"-b\s|--body[ =]", ("secret",), r"gh\s+secret\s+set"),
    )
)
_COMMAND_WORDS = (
    *(
        "curl",
        "smbclient",
        "mysql",
        "mariadb",
        "sshpass",
        "mongo",
        "twine",
        "redis-cli",
        "ldap",
        "sqlcmd",
        "bcp",
        "zip",
    ),
    *("openssl", "gh secret", "docker", "podman", "nerdctl", "buildah", "skopeo", "helm", "az login", "oc login"),
)


def _of_a_command(match: re.Match[str]) -> str | None:
    """Whether a flag belongs to a command that takes a secret by it: both stand on one line of a shell, which may go on on the next."""
    flag, value, end = match["n"], match["s"], match.start("n")
    start = max(0, end - _BACK)
    before = match.string[start:end]
    commands = [
        command
        for takes, words, command in _FLAGS
        if takes.fullmatch(flag) and any(word in before for word in words)  # most flags have no such command near
    ]
    if not commands or _PORT.match(value) or not _is_one(value):
        return None
    for found in _ENDS.finditer(match.string, start, end):
        start = found.end()
    line = match.string[start:end]
    return "password" if any(command.search(line) for command in commands) else None


_COMMANDS = (
    Shape(
        "command",
        (" -",),
        r" (?P<n>-[a-zA-Z]{0,6}[uU]\s?|--(?:proxy-)?user[ =])"
        r"(?P<w>\\*[\"'])?[^\s:$<\"'\\]{1,100}:(?![$<{\[*%`(/])"
        rf"(?P<s>(?(w)(?:(?!(?P=w))[^\n]){{1,{_LONG}}}|[^\s\"'\\`;|<>()]{{1,{_LONG}}}))(?(w)(?=(?P=w)))",
        when=_of_a_command,
    ),
    Shape(
        "command",
        (" -",),
        rf" (?P<n>-(?:pass(?:in|out)?\s+pass:|[a-zA-Z]{{0,3}}p[ =]?|[awPb]\s?|U\s?[^\s%]{{1,100}}%|-pass(?:word)?[ =]|-body[ =])){_VALUE}",
        when=_of_a_command,
    ),
)


def _flag_by_name(match: re.Match[str]) -> str | None:
    """`--password VALUE`: bare words behind a space only with a digit, since help texts and prose have such lines."""
    rule, value = field_rule(match["n"]), match["s"]
    if rule is None or not _is_one(value) or _FILE.match(value):
        return None
    bare = match["w"] is None
    if bare and match["e"] != "=" and not any(char.isdigit() for char in value):
        return None
    if (rule == "token" and value.isdigit()) or (rule == "secret" and "=" in value.rstrip("=")):
        return None
    return None if rule == "cookie" and "=" not in value else rule


def _told(match: re.Match[str]) -> str | None:
    """The rule of the name that is told with a value."""
    return field_rule(match["n"]) if _is_one(match["s"]) else None


# --- files of settings ------------------------------------------------------------------------------------------------


def _is_login(match: re.Match[str]) -> str | None:
    """`auth` of a registry: user and password in base 64."""
    if match.string[max(0, match.start() - 1) : match.start()] not in ('"', "'"):
        return None
    try:
        said = base64.b64decode(match["s"], validate=True)
    except binascii.Error:
        return None
    return "authorization" if b":" in said and said.isascii() and said.decode().isprintable() else None


def _of_a_registry(match: re.Match[str]) -> str | None:
    return "token" if _is_one(match["s"]) and match["s"] != match["s"].upper() else None


def _is_private(match: re.Match[str]) -> str | None:
    """A PEM block in base 64 that is a key and no certificate."""
    return "private-key" if b"PRIVATE KEY" in base64.b64decode(match["s"][:64]) else None


_NAME = r"[A-Za-z][\w.\-]{0,63}"
_FILES = (
    Shape(
        "netrc",
        ("machine ", "default login"),
        r"\b(?P<n>machine\s+\S{1,200}|default)\s+login\s+\S{1,200}\s+password\s+(?![$<{\[])(?P<s>[^\s\"'\\]+)",
        when=lambda match: "password" if _is_one(match["s"]) else None,
    ),
    Shape("npmrc", (":_",), rf":_(?P<n>authToken|password|auth)(?:\s*=\s*|\s){_VALUE}", when=_of_a_registry),
    Shape(
        "setting",
        ("configure set", "config set", "setenv ", "set -x", "set -gx", "set -Ux", "ENV "),
        rf"(?:config(?:ure)? set|setenv|\bset -\w{{1,3}}|\bENV)[ \t]+(?:\S{{0,100}}[.:/]_?)?(?P<n>{_NAME})[ \t]+{_VALUE}",
        when=_told,
    ),
    Shape(
        "auth",
        ("auth",),
        r"(?P<n>auth)(?P<q>\\*[\"'])\s*:\s*(?P=q)(?P<s>[A-Za-z0-9+/]{6,4000}={0,2})(?P=q)",
        fold=True,
        chars=":=",
        when=_is_login,
    ),
    Shape(
        "private-key",
        ("LS0tLS1CRUdJTi",),
        r"(?P<s>(?P<n>LS0tLS1CRUdJTi)[A-Za-z0-9+/]{50,}={0,2})",
        when=_is_private,
    ),
    Shape(
        "element",
        ("</",),
        rf"<(?P<n>{_NAME})>(?![$<{{\[*%(])(?P<s>[^\s<>]{{4,{_LONG}}})</(?P=n)>",
        when=_told,
    ),
    Shape(
        "attribute",
        (" value=",),
        rf"\b(?:key|name)=(?P<w>\\*[\"'])(?P<n>{_NAME})(?P=w)\s+(?:type=\S{{1,40}}\s+)?value=(?P=w)(?![$<{{\[%])"
        rf"(?P<s>(?:(?!(?P=w))[^\n]){{4,{_LONG}}})(?P=w)",
        when=_told,
    ),
)

# --- lines of a shell, connections ------------------------------------------------------------------------------------

_VARIABLE = re.compile(r"(?:(?<![\w.\\?&;$/-])|(?<=\\n))[A-Z][A-Z0-9_]{2,63}$|(?<=--from-literal=)[\w.-]{1,63}$")


def _variable(match: re.Match[str]) -> str | None:
    """The rule of a variable's name, told in capitals as those of an environment are, of which a bare word is the value."""
    end = match.start()
    name = _VARIABLE.search(match.string[max(0, end - 90) : end])
    return field_rule(name[0]) if name is not None and _is_one(match["s"]) else None


_NAME_BEFORE = re.compile(rf"(?<![\w.\\?&;]){_NAME}(?:\\*[\"'])?\s?$")


def _long(match: re.Match[str]) -> str | None:
    """The rule of the name before a value that is too long for the shapes of `credentials`."""
    end = match.start()
    name = _NAME_BEFORE.search(match.string[max(0, end - 90) : end])
    return field_rule(name[0].rstrip(" \t\n\\\"'")) if name is not None else None


_LINES = (
    Shape(
        "long",
        ROOTS,
        rf"(?P<n>[=:])\s?(?P<w>\\*[\"'])(?P<s>[^\s\"'\\]{{500,{_LONG}}})(?P=w)",
        fold=True,
        chars=":=",
        when=_long,
    ),
    Shape(
        "handed-over",
        ("password-stdin", "--with-token", "sudo -S"),
        rf"\b(?P<n>echo|printf)\s+(?:-n\s+)?{_VALUE}(?(w)(?P=w))\s*\|[^|\n]{{0,120}}(?:password-stdin|--with-token|sudo -S)",
        when=lambda match: "password" if _is_one(match["s"]) else None,
    ),
    Shape(
        "flag",
        ("--",),
        rf"(?<![\w-])--(?P<n>[A-Za-z][\w-]{{1,50}})(?P<e>[ \t]+|=){_VALUE}",
        when=_flag_by_name,
    ),
    Shape(
        "variable",
        ("pass", "pwd", "token", "secret", "key", "credential", "auth"),
        r"(?P<n>=)(?P<s>(?!\w+\.\w)[A-Za-z][A-Za-z_!@#%^*+~./-]{3,200})(?=[\s\"'\\;&|]|$)",
        fold=True,
        chars=":=",
        when=_variable,
    ),
    Shape(
        "connection",
        ("password=",),
        r"\b(?P<n>password)=(?P<s>[^\s\"'\\=$<{\[]{3,200})(?=\s+(?:host|hostaddr|port|user|dbname|sslmode)=)",
        when=_told,
    ),
    Shape(
        "oracle",
        ("sqlplus ", "jdbc:oracle"),
        r"(?:\bsqlplus\s+(?:-\w+\s+){0,4}|jdbc:oracle:thin:)(?P<n>\w{1,60})/(?![$<{\[])(?P<s>[^\s@/\"'\\]{1,200})@",
        when=lambda match: "password" if _is_one(match["s"]) else None,
    ),
    Shape(
        "url-userinfo",
        ("://",),
        r"://(?P<s>(?=[^\s@/]{0,200}\d)[A-Za-z0-9_~.-]{20,500})@(?![\w.-]*sentry)",
    ),
)

SPOKEN = (
    Shape("key", _KEY_NEEDLES, rf"(?<![A-Za-z0-9_])(?<![A-Za-z0-9_]-)(?:{_KEYS})"),  # not amid a digest in base 64
    Shape("key", (":AA",), r"(?<=/bot)\d{8,12}:AA[A-Za-z0-9_-]{32,}"),  # as the address of a Telegram bot has it
    *_COMMANDS,
    *_FILES,
    *_LINES,
)
"""In this order, behind those of `credentials`."""
_NAMED = (" -", "--", "</", " value=", ":_", "password=")
SPOKEN_FIRST = (
    *("echo", "printf"),
    *_COMMAND_WORDS,
    *(needle.lower().strip() for shape in SPOKEN for needle in shape.needles if needle not in _NAMED),
)
"""What stands in front of what these find, where it is no name of a secret."""
