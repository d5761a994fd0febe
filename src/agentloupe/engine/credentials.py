r"""What a credential looks like: by the name of its field, and by its own shape in any text.

Names are compared as words, so `apiKey`, `X-Api-Key` and `db.api_key` are one name, and `max_tokens`, `tokenizer` and
`next_page_token` are none. Shapes are prefixes and frames that issuers publish (documented token formats of GitHub, AWS,
Slack, Google, Stripe, OpenAI ...; JWT, RFC 7519; PEM, RFC 7468; Bearer, RFC 6750; user information in URLs, RFC 3986).
There is no guessing by entropy: a digest, an id or an image looks like chance too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache

__all__ = [
    "COOKIES",
    "ID_LIKE",
    "ROOTS",
    "SHAPES",
    "TOKEN_NEEDLES",
    "UNTOUCHED",
    "Look",
    "Shape",
    "Words",
    "cookie_text",
    "field_rule",
    "holds_mark",
    "is_header",
    "mark",
    "words_of",
]

UNTOUCHED = frozenset(
    {
        *("signature", "thoughtsignature", "thinkingsignature", "encryptedcontent", "encryptedreasoning"),
        *("b64json", "filedata", "imagedata"),
    }
)
"""Fields (letters and digits, lower case) whose text is opaque to us and must stay exactly as it is."""

# --- names ------------------------------------------------------------------------------------------------------------

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_COMPOUND = re.compile(
    r"(api|access|secret|private|signing|encryption|session|auth|master|account|subscription|service)keys?$"
    r"|(access|auth|refresh|bearer|id|csrf|xsrf|session|security|api|secret|oauth|jwt|sas|app|bot)token$"
    r"|(client|app|consumer|shared|webhook)secret$|passw(or)?d$|passphrase$|passcode$|authorization$|credentials?$"
    r"|connectionstring$|functionskey$"
)
_LAST = frozenset(
    {
        *("password", "passwords", "passwd", "passphrase", "passcode", "pwd", "secret", "secrets"),
        *("authorization", "credential", "credentials", "cookie", "cookies", "apikey", "apikeys", "jwt", "bearer"),
    }
)
_ALMOST_LAST = frozenset({"hash", "confirmation", "confirm", "value", "repeat", "again", "plain", "text"})
_NO_SECRET_TOKEN = frozenset(
    {
        *("page", "next", "prev", "previous", "continuation", "cursor", "sync", "resume", "cancellation", "cancel"),
        *("pad", "eos", "bos", "unk", "sep", "cls", "mask", "stop", "end", "start", "special", "first", "last"),
        *("per", "max", "min", "max_tokens", "price", "cost", "count", "num", "top", "draft", "delta"),
    }
)
ID_LIKE = frozenset({"id", "ids", "uuid", "uid"})

_HEADERS = frozenset(
    {
        *("authorization", "proxyauthorization", "cookie", "setcookie", "xapikey", "apikey", "xauthtoken"),
        *("xamzsecuritytoken", "xgoogapikey", "xgitlabtoken", "xcsrftoken", "xxsrftoken", "openaiapikey"),
    }
)
COOKIES = frozenset({"cookie", "cookies", "setcookie"})


def words_of(name: str) -> tuple[str, ...]:
    """The words of a field's name, lower case: `db.apiKey` -> `db`, `api`, `key`."""
    return tuple(word.lower() for word in _WORD.findall(name))


@lru_cache(maxsize=8192)
def field_rule(name: str) -> str | None:
    """The rule that a field's name falls under (`password`, `api-key`, `token`, `cookie` ...), or `None`."""
    if not 2 <= len(name) <= 128:
        return None
    words = words_of(name)
    if not words:
        return None
    joined = "".join(words)
    if joined in COOKIES:
        return "cookie"
    if joined in _HEADERS:
        return words[-1] if words[-1] != "key" else "api-key"
    last = words[-1]
    if last.isdigit() and len(words) > 1:
        words, last = words[:-1], words[-2]
    if last in ID_LIKE:
        return None
    if len(words) > 1 and last in _ALMOST_LAST and words[-2] in _LAST:
        last = words[-2]
    if last in _LAST:
        return "cookie" if last in COOKIES else last.removesuffix("s") if last != "credentials" else "credential"
    return _token_rule(words) if last == "token" else _compound_rule(joined)


def is_header(name: str) -> bool:
    """Whether this is the name of a header that carries a credential."""
    return len(name) <= 64 and "".join(words_of(name)) in _HEADERS


def _token_rule(words: tuple[str, ...]) -> str | None:
    return None if len(words) > 1 and words[-2] in _NO_SECRET_TOKEN else "token"


def _compound_rule(joined: str) -> str | None:
    match = _COMPOUND.search(joined)
    if match is None:
        return None
    return "api-key" if match[0].rstrip("s").endswith("key") else "token" if match[0].endswith("token") else "secret"


# --- cookies ----------------------------------------------------------------------------------------------------------

_PREFERENCES = frozenset(
    {
        *("theme", "lang", "language", "locale", "tz", "timezone", "currency", "colorscheme", "darkmode", "country"),
        *("consent", "cookieconsent", "fontsize", "units"),
    }
)
_ATTRIBUTES = frozenset(
    {"path", "domain", "expires", "maxage", "samesite", "secure", "httponly", "priority", "partitioned", "version"}
)


def cookie_text(text: str) -> str:
    """A `Cookie` or `Set-Cookie` header without the values of its cookies; plain preferences (`theme`) stay."""
    return ";".join(_one_cookie(part) for part in text.split(";"))


def _one_cookie(part: str) -> str:
    name, equals, value = part.partition("=")
    plain = "".join(words_of(name))
    if not value.strip() or plain in _PREFERENCES or plain in _ATTRIBUTES:
        return part
    if not equals:
        return part
    return f"{name}={mark('cookie')}"


def mark(rule: str) -> str:
    """What stands in the place of a removed value."""
    return f"[removed:{rule}]"


def holds_mark(value: object) -> bool:
    """Whether it is a text that something was removed from."""
    return isinstance(value, str) and "[removed:" in value


# --- shapes -----------------------------------------------------------------------------------------------------------


_RARE = "JKQXZVGW_-9876543210jqxz=:\\/IASvwykbpcuAmdgflhr.nstoaie "
"""Characters by how seldom they stand in text and JSON, roughly: one character is found twenty times faster than two."""


class Shape:
    """A way in which credentials stand in text.

    Args:
        rule: the rule's name, as it is shown.
        needles: the text is looked at only if one of these occurs in it (in its lower-case form where `fold`).
        pattern: what is removed is its group `s`, or all of it.
        when: decides about one match by its name, group `n`; `None` means always.
        chars: and only if one of these characters occurs in it.
        value: the value behind a match, looked for only where the name is one of a secret, so that a text of nothing but
            names is not read to its end for each.
        near: and only if this is found in its lower-case form, which is quicker than the pattern.
    """

    __slots__ = ("chars", "fold", "near", "needles", "pattern", "rule", "value", "when")

    def __init__(
        self,
        rule: str,
        needles: tuple[str, ...],
        pattern: str,
        *,
        flags: int = 0,
        fold: bool = False,
        when: Callable[[re.Match[str]], str | None] | None = None,
        chars: str = "",
        value: str = "",
        near: str = "",
    ) -> None:
        self.rule = rule
        self.needles = needles
        self.pattern = re.compile(pattern, flags)
        self.fold = fold
        self.when = when
        self.chars = chars
        self.value = re.compile(value) if value else None
        self.near = re.compile(near) if near else None

    @property
    def takes_all(self) -> bool:
        """Whether it removes all of what it finds, so that a text may become its mark and nothing else."""
        return self.when is None and self.value is None and "s" not in self.pattern.groupindex

    def apply(self, text: str) -> str:
        """The text without what this shape finds."""
        if self.near is not None and self.near.search(text.lower()) is None:
            return text
        if self.value is not None:
            return self._apply_by_name(text, self.value)
        if self.when is None:
            return self.pattern.sub(lambda match: self._cut(match, self.rule), text)
        parts: list[str] = []
        start = at = 0
        while (match := self.pattern.search(text, at)) is not None:
            rule = self.when(match)
            if rule is None:
                at = match.end("n")  # what it names may hold others: go on behind the name
                continue
            parts += (text[start : match.start()], self._cut(match, rule))
            start = at = match.end()
        return "".join((*parts, text[start:])) if parts else text

    def _apply_by_name(self, text: str, value: re.Pattern[str]) -> str:
        parts: list[str] = []
        start = at = 0
        while (match := self.pattern.search(text, at)) is not None:
            at = match.end("n")
            rule = field_rule(match["n"])
            found = value.match(text, match.end()) if rule is not None else None
            if rule is not None and found is not None and not found[0].startswith("[removed:"):
                parts += (text[start : found.start()], mark(rule))
                start = at = found.end()
        return "".join((*parts, text[start:])) if parts else text

    def _cut(self, match: re.Match[str], rule: str) -> str:
        if "s" not in match.re.groupindex:
            return mark(rule)
        start, end = match.start("s") - match.start(), match.end("s") - match.start()
        inside = match["s"]
        put = cookie_text(inside) if rule == "cookie" and "=" in inside else mark(rule)
        return match[0][:start] + put + match[0][end:]


class Words:
    """Which of many words stand in a text: quick, since most texts hold none.

    They are sought by their rarest character first. Of many with the same one, those are sought whose two characters before it
    stand before one in the text.
    """

    __slots__ = ("_groups",)

    def __init__(self, words: Iterable[str]) -> None:
        by_char: dict[str, list[str]] = {}
        for word in dict.fromkeys(words):
            by_char.setdefault(min(word, key=_RARE.find) if word else "", []).append(word)
        self._groups = tuple((char, *_by_lead(char, of)) for char, of in by_char.items())

    def within(self, text: str) -> list[str]:
        """Those that stand in a text; the empty one stands in all."""
        found: list[str] = []
        for char, plain, by_lead in self._groups:
            if char in text:
                for word in plain:
                    if word in text:
                        found.append(word)  # noqa: PERF401  # most find nothing: a list for each takes longer
                if by_lead:
                    for lead in by_lead.keys() & {part[-2:] for part in text.split(char)}:
                        found += [word for word in by_lead[lead] if word in text]
        return found


_FEW = 4


def _by_lead(char: str, words: list[str]) -> tuple[list[str], dict[str, list[str]]]:
    """Words that are sought one by one, and the others by the two characters before the last `char` in them."""
    if len(words) <= _FEW:
        return words, {}
    plain: list[str] = []
    by_lead: dict[str, list[str]] = {}
    for word in words:
        lead = word[: word.rindex(char)][-2:]
        if len(lead) < 2 or char in lead:
            plain.append(word)
        else:
            by_lead.setdefault(lead, []).append(word)
    return plain, by_lead


class Look:
    """Which of some shapes could find something in a text, told by their needles only. Each is sought once for all shapes."""

    __slots__ = ("_tables",)

    def __init__(self, shapes: Sequence[Shape]) -> None:
        tables: dict[tuple[str, bool], dict[str, int]] = {}
        for at, shape in enumerate(shapes):
            bits = tables.setdefault((shape.chars, shape.fold), {})
            for needle in shape.needles:
                bits[needle] = bits.get(needle, 0) | 1 << at
        self._tables = tuple((*kind, Words(bits), bits) for kind, bits in tables.items())

    def at(self, text: str) -> int:
        """The shapes to try, as bits by their place."""
        found, low = 0, text.lower()
        for chars, fold, words, bits in self._tables:
            for char in chars:
                if char in text:
                    break
            else:
                if chars:
                    continue
            for word in words.within(low if fold else text):
                found |= bits[word]
        return found


def by_name(match: re.Match[str]) -> str | None:
    """The rule of the name beside a value; marks that already stand there stay."""
    return None if match["s"].startswith("[removed:") else field_rule(match["n"])


def _assigned(match: re.Match[str]) -> str | None:
    """`name=value` in running text: bare values only with a digit, since `token=token` and `api_key=os.environ` are code."""
    return by_name(match) if any(char.isdigit() for char in match["s"]) else None


_B = r"(?<![A-Za-z0-9_])"
_TOKENS = "|".join(
    (
        r"sk-(?=[A-Za-z0-9_-]{0,200}\d)[A-Za-z0-9_-]{16,}",
        r"(?:sk|rk)_(?:live|test)_[0-9A-Za-z]{16,}",
        r"whsec_[0-9A-Za-z+/=]{16,}",
        r"gh[oprsu]_[A-Za-z0-9]{20,}",
        r"github_pat_[A-Za-z0-9_]{20,}",
        r"glpat-[A-Za-z0-9_-]{16,}",
        r"(?:AKIA|ASIA)[0-9A-Z]{16}(?![0-9A-Za-z])",
        r"xox[abeoprs]-[A-Za-z0-9-]{10,}",
        r"xapp-\d-[A-Za-z0-9-]{10,}",
        r"AIza[0-9A-Za-z_-]{30,}",
        r"ya29\.[0-9A-Za-z_-]{20,}",
        r"gsk_[0-9A-Za-z]{20,}",
        r"hf_[0-9A-Za-z]{30,}",
        r"r8_[0-9A-Za-z]{30,}",
        r"npm_[0-9A-Za-z]{30,}",
        r"SG\.[0-9A-Za-z_-]{16,}\.[0-9A-Za-z_-]{16,}",
        r"(?:xai|nvapi|tvly|pplx|gloo|fw|rpa|csk)-(?=[A-Za-z0-9_-]{0,200}\d)[A-Za-z0-9_-]{20,}",
        r"lsv2_(?:pt|sk)_[0-9a-f]{32}_[0-9a-f]{8,}",
        r"GOCSPX-[A-Za-z0-9_-]{24,}",
        r"\d{8,10}:AA[A-Za-z0-9_-]{32,}",
        r"(?:dop|doo|dor)_v1_[0-9a-f]{40,}",
        r"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}",
        r"glsa_[0-9A-Za-z]{32}_[0-9a-fA-F]{8}",
        r"(?:hvs|hvb)\.[A-Za-z0-9_-]{24,}",
        r"(?:dckr_pat|lin_api|sbp|ntn|figd|tskey-(?:api|auth))[_-](?=[A-Za-z0-9_-]{0,200}\d)[A-Za-z0-9_-]{24,}",
        r"p[y]pi-AgE[A-Za-z0-9_-]{40,}",
        r"AGE-SECRET-KEY-1[0-9A-Z]{40,}",
    )
)
TOKEN_NEEDLES = (
    *("sk-", "sk_", "rk_", "whsec_", "gho_", "ghp_", "ghr_", "ghs_", "ghu_", "github_pat_", "glpat-", "AKIA", "ASIA"),
    *(
        "xox",
        "xapp-",
        "AIza",
        "ya29.",
        "gsk_",
        "hf_",
        "r8_",
        "npm_",
        "SG.",
        "xai-",
        "nvapi-",
        "tvly-",
        "pplx-",
        "gloo-",
    ),
    *(
        "fw-",
        "rpa-",
        "csk-",
        "lsv2_",
        "GOCSPX-",
        ":AA",
        "_v1_",
        "shpat_",
        "shpca_",
        "shppa_",
        "shpss_",
        "glsa_",
        "hvs.",
    ),
    *("hvb.", "dckr_pat", "lin_api", "sbp_", "ntn_", "figd_", "tskey-", "-AgE", "AGE-SECRET-KEY-1"),
)
ROOTS = ("key", "token", "secret", "pass", "pwd", "auth", "cookie", "credential", "bearer", "jwt", "connectionstring")
"""What every name that `field_rule` knows holds one of."""
_NAME = r"[A-Za-z][\w.\-]{0,63}"

SHAPES: tuple[Shape, ...] = (
    Shape(
        "private-key",
        ("PRIVATE KEY",),
        r"-----BEGIN (?P<k>[A-Z0-9 ]*)PRIVATE KEY(?: BLOCK)?-----.*?(?:-----END (?P=k)PRIVATE KEY(?: BLOCK)?-----|\Z)",
        flags=re.DOTALL,
    ),
    Shape("key", TOKEN_NEEDLES, f"{_B}(?:{_TOKENS})"),
    Shape("jwt", ("eyJ",), rf"{_B}eyJ[A-Za-z0-9_-]{{8,}}\.eyJ[A-Za-z0-9_-]{{8,}}(?:\.[A-Za-z0-9_-]*)?"),
    Shape(
        "url-userinfo",
        ("://",),
        r"(?<![A-Za-z0-9])[A-Za-z][A-Za-z0-9+.\-]{0,20}://(?P<s>[^\s/?#@\"'<>\[]{0,200}:[^\s/?#\"'<>]{0,500})@",
    ),
    Shape(
        "authorization",
        ("bearer ", "basic ", "token ", "apikey ", "digest "),
        r"\bauthorization[\"'\\]*\s*[:=]\s*[\"'\\]*(?:basic|bearer|token|apikey|digest)\s+(?P<s>[^\s\"'\\\[]+)",
        flags=re.IGNORECASE,
        fold=True,
    ),
    Shape(
        "bearer",
        ("bearer ",),
        r"\bbearer\s+(?P<s>(?:(?=[^\s\"']{0,500}\d)[A-Za-z0-9._~+/\-]{8,}|[A-Za-z0-9._~+/\-]{32,})=*)",
        flags=re.IGNORECASE,
        fold=True,
    ),
    Shape(
        "cookie",
        ("cookie:",),
        r"\b(?:set-)?cookie:\s*(?P<s>[^\s=;\"']+=[^\r\n\"']*)",
        flags=re.IGNORECASE,
        fold=True,
    ),
    Shape(
        "query",
        ("=",),
        r"[?&;#](?P<n>[\w.\-%\[\]]{1,64})=",
        value=r"[^&\s#\"'<>\\;]+",
    ),
    Shape(
        "signed-url",
        ("signature=", "sig="),
        r"[?&](?:(?:x-(?:amz|goog)-)?signature|sig)=(?P<s>[^&\s#\"'<>\\;\[]{16,})",
        flags=re.IGNORECASE,
        fold=True,
        chars="?&",
    ),
    Shape(
        "webhook",
        ("hooks.slack.com/", "/api/webhooks/"),
        r"(?:hooks\.slack\.com/(?:services|workflows)/T\w{4,}/\w{4,}/(?:\d+/)?|/api/webhooks/\d{10,}/)(?P<s>[\w-]{10,})",
    ),
    Shape(
        "multipart",
        ("form-data;",),
        r"\bname=\"(?P<n>[\w.\-\[\]]{1,64})\"(?:;[^\r\n]{0,500})?\r?\n(?:[A-Za-z][\w\-]{0,60}:[^\r\n]{0,500}\r?\n){0,9}\r?\n"
        r"(?P<s>[^\r\n]+(?:\r?\n(?!--)[^\r\n]*){0,2000})",
        fold=True,
        when=by_name,
    ),
    *(
        Shape(
            "pair",
            ROOTS,
            rf"(?P<q>[\"'])(?P<n>{_NAME})(?P=q)\s*[:=]\s*{quote}(?P<s>(?:[^{quote}\\]|\\.)+){quote}",
            flags=re.DOTALL,
            fold=True,
            when=by_name,
            chars=":=",
        )
        for quote in "\"'"
    ),
    Shape(
        "inner-pair",  # in JSON text that lies in JSON text, at any depth: a value ends at the quote that opened it
        ("\\",),
        rf"(?P<q>\\+[\"'])(?P<n>{_NAME})(?P=q)\s*[:=]\s*(?P<w>\\+[\"'])(?P<s>(?:(?!(?<!\\)(?P=w)).){{1,20000}})(?P=w)",
        flags=re.DOTALL,
        chars=":=",
        when=by_name,
    ),
    *(
        Shape(
            "assignment",
            ROOTS,
            rf"(?<![\w.\\?&;])(?P<n>{_NAME})\s?[=:]\s?{value}",
            fold=True,
            when=when,
            chars=":=",
            near=rf"(?:{'|'.join(ROOTS)})[\w.\-\u0307]{{0,128}}\s?[=:]",  # U+0307 comes of a letter that becomes two
        )
        for value, when in (
            (r"(?P<w>[\"'])(?P<s>(?:(?!(?P=w))[^\n]){1,500})(?P=w)", by_name),
            (r"(?P<s>[A-Za-z0-9_\-./+~!@$%^*]{6,}=*)", _assigned),
        )
    ),
)
"""In this order: a later shape sees what an earlier one left."""
