"""
FOCUS 1.2 as a table: what columns there are, what they hold, and what must hold between them.

Transcribed from the FinOps Open Cost and Usage Specification, tag v1.2 (CC BY 4.0): each row names
the file below ``specification/columns/`` or ``specification/attributes/`` that it comes from. The
validator on the package index (focus-validator 1.0.0) knows 0.5, 1.0-preview and 1.0 only.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa


class Column(NamedTuple):
    """A column: may it be absent, may it be null, its type and format, and the source."""

    name: str
    level: str
    nullable: bool
    type: str
    format: str
    source: str


_ROWS: Final = (
    ("AvailabilityZone", "Recommended", True, "String", "", "availabilityzone.md"),
    ("BilledCost", "Mandatory", False, "Decimal", "numeric", "billedcost.md"),
    ("BillingAccountId", "Mandatory", False, "String", "", "billingaccountid.md"),
    ("BillingAccountName", "Mandatory", True, "String", "", "billingaccountname.md"),
    ("BillingAccountType", "Conditional", False, "String", "", "billingaccounttype.md"),
    ("BillingCurrency", "Mandatory", False, "String", "currency", "billingcurrency.md"),
    ("BillingPeriodEnd", "Mandatory", False, "Date/Time", "time", "billingperiodend.md"),
    ("BillingPeriodStart", "Mandatory", False, "Date/Time", "time", "billingperiodstart.md"),
    ("CapacityReservationId", "Conditional", True, "String", "", "capacityreservationid.md"),
    (
        "CapacityReservationStatus",
        "Conditional",
        True,
        "String",
        "allowed",
        "capacityreservationstatus.md",
    ),
    ("ChargeCategory", "Mandatory", False, "String", "allowed", "chargecategory.md"),
    ("ChargeClass", "Mandatory", True, "String", "allowed", "chargeclass.md"),
    ("ChargeDescription", "Mandatory", True, "String", "", "chargedescription.md"),
    ("ChargeFrequency", "Recommended", False, "String", "allowed", "chargefrequency.md"),
    ("ChargePeriodEnd", "Mandatory", False, "Date/Time", "time", "chargeperiodend.md"),
    ("ChargePeriodStart", "Mandatory", False, "Date/Time", "time", "chargeperiodstart.md"),
    (
        "CommitmentDiscountCategory",
        "Conditional",
        True,
        "String",
        "allowed",
        "commitmentdiscountcategory.md",
    ),
    ("CommitmentDiscountId", "Conditional", True, "String", "", "commitmentdiscountid.md"),
    ("CommitmentDiscountName", "Conditional", True, "String", "", "commitmentdiscountname.md"),
    (
        "CommitmentDiscountQuantity",
        "Conditional",
        True,
        "Decimal",
        "numeric",
        "commitmentdiscountquantity.md",
    ),
    (
        "CommitmentDiscountStatus",
        "Conditional",
        True,
        "String",
        "allowed",
        "commitmentdiscountstatus.md",
    ),
    ("CommitmentDiscountType", "Conditional", True, "String", "", "commitmentdiscounttype.md"),
    ("CommitmentDiscountUnit", "Conditional", True, "String", "unit", "commitmentdiscountunit.md"),
    ("ConsumedQuantity", "Conditional", True, "Decimal", "numeric", "consumedquantity.md"),
    ("ConsumedUnit", "Conditional", True, "String", "unit", "consumedunit.md"),
    ("ContractedCost", "Mandatory", False, "Decimal", "numeric", "contractedcost.md"),
    ("ContractedUnitPrice", "Conditional", True, "Decimal", "numeric", "contractedunitprice.md"),
    ("EffectiveCost", "Mandatory", False, "Decimal", "numeric", "effectivecost.md"),
    ("InvoiceId", "Recommended", True, "String", "", "invoiceid.md"),
    ("InvoiceIssuerName", "Mandatory", False, "String", "", "invoiceissuer.md"),
    ("ListCost", "Mandatory", False, "Decimal", "numeric", "listcost.md"),
    ("ListUnitPrice", "Conditional", True, "Decimal", "numeric", "listunitprice.md"),
    ("PricingCategory", "Conditional", True, "String", "allowed", "pricingcategory.md"),
    ("PricingCurrency", "Conditional", True, "String", "currency", "pricingcurrency.md"),
    (
        "PricingCurrencyContractedUnitPrice",
        "Conditional",
        True,
        "Decimal",
        "numeric",
        "pricingcurrencycontractedunitprice.md",
    ),
    (
        "PricingCurrencyEffectiveCost",
        "Conditional",
        True,
        "Decimal",
        "numeric",
        "pricingcurrencyeffectivecost.md",
    ),
    (
        "PricingCurrencyListUnitPrice",
        "Conditional",
        True,
        "Decimal",
        "numeric",
        "pricingcurrencylistunitprice.md",
    ),
    ("PricingQuantity", "Mandatory", True, "Decimal", "numeric", "pricingquantity.md"),
    ("PricingUnit", "Mandatory", True, "String", "unit", "pricingunit.md"),
    ("ProviderName", "Mandatory", False, "String", "", "provider.md"),
    ("PublisherName", "Mandatory", False, "String", "", "publisher.md"),
    ("RegionId", "Conditional", True, "String", "", "regionid.md"),
    ("RegionName", "Conditional", True, "String", "", "regionname.md"),
    ("ResourceId", "Conditional", True, "String", "", "resourceid.md"),
    ("ResourceName", "Conditional", True, "String", "", "resourcename.md"),
    ("ResourceType", "Conditional", True, "String", "", "resourcetype.md"),
    ("ServiceCategory", "Mandatory", False, "String", "allowed", "servicecategory.md"),
    ("ServiceName", "Mandatory", False, "String", "", "servicename.md"),
    ("ServiceSubcategory", "Recommended", False, "String", "allowed", "servicesubcategory.md"),
    ("SkuId", "Conditional", True, "String", "", "skuid.md"),
    ("SkuMeter", "Conditional", True, "String", "", "skumeter.md"),
    ("SkuPriceDetails", "Conditional", True, "JSON", "json", "skupricedetails.md"),
    ("SkuPriceId", "Conditional", True, "String", "", "skupriceid.md"),
    ("SubAccountId", "Conditional", True, "String", "", "subaccountid.md"),
    ("SubAccountName", "Conditional", True, "String", "", "subaccountname.md"),
    ("SubAccountType", "Conditional", True, "String", "", "subaccounttype.md"),
    ("Tags", "Conditional", True, "JSON", "json", "tags.md"),
)
COLUMNS: Final = {row[0]: Column(*row) for row in _ROWS}

ALLOWED: Final = {
    # chargecategory.md, chargeclass.md, chargefrequency.md
    "ChargeCategory": {"Usage", "Purchase", "Tax", "Credit", "Adjustment"},
    "ChargeClass": {"Correction"},
    "ChargeFrequency": {"One-Time", "Recurring", "Usage-Based"},
    # servicecategory.md; servicesubcategory.md under Integration
    "ServiceCategory": {
        "AI and Machine Learning", "Analytics", "Business Applications", "Compute", "Databases",
        "Developer Tools", "Multicloud", "Identity", "Integration", "Internet of Things",
        "Management and Governance", "Media", "Migration", "Mobile", "Networking", "Security",
        "Storage", "Web", "Other",
    },
    "ServiceSubcategory": {
        "API Management", "Messaging", "Workflow Orchestration", "Other (Integration)",
    },
}  # fmt: skip

Row = dict[str, Any]


def _both(one: str, other: str) -> Callable[[Row], bool]:
    """Hold that a column is null where another is, and only there."""
    return lambda row: (row.get(one) is None) == (row.get(other) is None)


def _usage(row: Row) -> bool:
    return bool(row["ChargeCategory"] == "Usage")


RULES: Final[tuple[tuple[str, str, Callable[[Row], bool]], ...]] = (
    ("PricingQuantity MUST NOT be null of Usage", "pricingquantity.md",
     lambda r: not _usage(r) or r["PricingQuantity"] is not None),
    ("ConsumedQuantity MUST NOT be null of Usage", "consumedquantity.md",
     lambda r: not _usage(r) or r["ConsumedQuantity"] is not None),
    ("ConsumedQuantity MUST be null of what isn't Usage", "consumedquantity.md",
     lambda r: _usage(r) or r["ConsumedQuantity"] is None),
    ("PricingUnit null as PricingQuantity", "pricingunit.md",
     _both("PricingUnit", "PricingQuantity")),
    ("ConsumedUnit null as ConsumedQuantity", "consumedunit.md",
     _both("ConsumedUnit", "ConsumedQuantity")),
    ("SubAccountName null as SubAccountId", "subaccountname.md",
     _both("SubAccountName", "SubAccountId")),
    ("ResourceType null as ResourceId", "resourcetype.md", _both("ResourceType", "ResourceId")),
    ("ResourceName MUST be null without ResourceId", "resourcename.md",
     lambda r: r["ResourceId"] is not None or r["ResourceName"] is None),
    ("ResourceName MUST NOT duplicate ResourceId", "resourcename.md",
     lambda r: r["ResourceId"] is None or r["ResourceName"] != r["ResourceId"]),
    ("costs of a charge unrelated to others MUST match BilledCost", "effectivecost.md",
     lambda r: r["BilledCost"] == r["EffectiveCost"] == r["ListCost"] == r["ContractedCost"]),
    ("a period's end is exclusive, so after its start", "chargeperiodend.md",
     lambda r: r["ChargePeriodStart"] < r["ChargePeriodEnd"]
     and r["BillingPeriodStart"] < r["BillingPeriodEnd"]),
    ("a charge is within its billing period", "chargeperiodstart.md",
     lambda r: r["BillingPeriodStart"] <= r["ChargePeriodStart"]
     and r["ChargePeriodEnd"] <= r["BillingPeriodEnd"]),
    ("ChargeFrequency MUST NOT be Usage-Based of a Purchase", "chargefrequency.md",
     lambda r: r["ChargeCategory"] != "Purchase" or r["ChargeFrequency"] != "Usage-Based"),
)  # fmt: skip

_UNIT: Final = re.compile(
    # unit_format.md: sizes, counts (capitalised, plural), times
    r"[KMGTPE]?i?[bB]|[A-Z][a-z]+s|[A-Z][A-Za-z]*-(Years|Months|Days|Hours|Minutes|Seconds)"
)
# numeric_format.md: no sign of a positive, E notation, no grouping
_NUMBER: Final = re.compile(r"-?\d+(\.\d+)?(E-?\d+)?")
# datetime_format.md
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


def faults(table: pa.Table) -> list[str]:
    """Return the faults that FOCUS 1.2 finds in a table, a sentence each."""
    found = [f"{c.name} is missing ({c.source})" for c in COLUMNS.values()
             if c.level == "Mandatory" and c.name not in table.column_names]  # fmt: skip
    own = [name for name in table.column_names if name not in COLUMNS]
    found += [f"{name} has no prefix x_ (column_handling.md)" for name in own
              if not re.fullmatch("x_[A-Z][A-Za-z]+", name)]  # fmt: skip
    if table.column_names[-len(own) :] != own:
        found.append("custom columns aren't last (column_handling.md)")
    types = {"String": pa.types.is_string, "JSON": pa.types.is_string,
             "Decimal": pa.types.is_decimal, "Date/Time": pa.types.is_timestamp}  # fmt: skip
    for field in table.schema:
        column = COLUMNS.get(field.name)
        if column is not None and not types[column.type](field.type):
            found.append(f"{field.name} is {field.type}, not {column.type} ({column.source})")
        if pa.types.is_timestamp(field.type) and field.type.tz != "UTC":
            found.append(f"{field.name} isn't in UTC (datetime_format.md)")
    if any("is missing" in fault for fault in found):
        return found  # rows can't be looked at without it
    for number, row in enumerate(table.to_pylist()):
        found += [f"row {number}: {fault}" for fault in _row_faults(row)]
    return found


def _row_faults(row: Row) -> list[str]:
    found = [f"{rule} ({source})" for rule, source, holds in RULES if not holds(row)]
    for name, value in row.items():
        column = COLUMNS.get(name)
        if column is None:
            continue
        if value is None:
            if not column.nullable:
                found.append(f"{name} is null ({column.source})")
        elif name in ALLOWED and value not in ALLOWED[name]:
            found.append(f"{name} is {value!r} ({column.source})")
        elif isinstance(value, str) and not value.strip():
            found.append(f"{name} is empty (null_handling.md)")
        elif column.format == "currency" and not re.fullmatch("[A-Z]{3}", value):
            found.append(f"{name} is {value!r} (currency_format.md)")
        elif column.format == "unit" and not _UNIT.fullmatch(value):
            found.append(f"{name} is {value!r} (unit_format.md)")
        elif column.format == "json" and not _is_flat(value):
            found.append(f"{name} is {value!r} (key_value_format.md)")
    return found


def _is_flat(text: str) -> bool:
    pairs = json.loads(text, object_pairs_hook=list)
    names = [name for name, _ in pairs]
    flat = all(not isinstance(value, list | dict) for _, value in pairs)
    return flat and len(set(names)) == len(names)


def text_faults(path: Path) -> list[str]:
    """Return the faults that FOCUS 1.2 finds in the texts of a CSV file, a sentence each."""
    patterns = {"numeric": _NUMBER, "time": _TIME}
    with path.open(newline="", encoding="utf-8") as file:
        return [
            f"{name} is {text!r}"
            for row in csv.DictReader(file) for name, text in row.items()
            if text and name in COLUMNS and COLUMNS[name].format in patterns
            and not patterns[COLUMNS[name].format].fullmatch(text)
        ]  # fmt: skip
