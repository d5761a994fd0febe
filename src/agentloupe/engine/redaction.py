"""What the profile `redacted` takes out besides credentials: personal data, by names of fields and by shapes in any text.

It works by the rules of secret removal, so a replay applies the same and a matching key counts what was taken out as its rule's
name only. Shapes are those that can be told from other text at a glance. A person's name in a sentence is not found, nor is
anything that a project does not name: these rules lower what is kept, and anonymise nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from agentloupe.engine.privacy import Rules

__all__ = ["PERSONAL_FIELDS", "PERSONAL_SHAPES", "redacted"]

PERSONAL_FIELDS: Final = (
    *("email", "e_mail", "email_address", "phone", "phone_number", "telephone", "mobile", "mobile_number"),
    *("first_name", "last_name", "full_name", "given_name", "family_name", "surname", "maiden_name"),
    *("street", "street_address", "postal_address", "home_address", "billing_address", "shipping_address"),
    *("date_of_birth", "birth_date", "birthday", "dob", "ssn", "social_security_number", "tax_id", "national_id"),
    *("passport_number", "iban", "account_number", "card_number", "credit_card", "cvv"),
)
"""Names of fields, in any spelling, whose values are personal data."""

PERSONAL_SHAPES: Final[Mapping[str, str]] = {
    "email": r"[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){1,8}",
    "iban": r"\b[A-Z]{2}[0-9]{2}(?: ?[A-Z0-9]{4}){3,7}(?: ?[A-Z0-9]{1,3})?\b",
    "card": r"\b[0-9]{4}([ -])[0-9]{4}\1[0-9]{4}\1[0-9]{1,7}\b|\b(?:4[0-9]{15}|5[1-5][0-9]{14}|3[47][0-9]{13})\b",
    "phone": r"(?<![\w+])\+[1-9](?:[ ()./-]{0,2}[0-9]){6,14}\b",
    "ssn": r"\b[0-9]{3}-[0-9]{2}-[0-9]{4}\b",
}
"""Shapes of personal data, by the name of their rule."""


def redacted(rules: Rules, fields: Sequence[str], keep: Sequence[str], patterns: Mapping[str, str]) -> Rules:
    """Rules of secret removal with those of redaction: the built-in ones and those of a project.

    Args:
        rules: what every recording of the project takes out.
        fields: further names of fields.
        keep: names of fields and of shapes that are left alone.
        patterns: further shapes, by name.
    """
    names = [name for name in (*PERSONAL_FIELDS, *fields) if name not in keep]
    shapes = {name: shape for name, shape in {**PERSONAL_SHAPES, **patterns}.items() if name not in keep}
    return replace(rules, fields=tuple(dict.fromkeys((*rules.fields, *names))), patterns={**shapes, **rules.patterns})
