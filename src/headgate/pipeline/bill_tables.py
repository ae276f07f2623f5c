"""
Say what the tables of a shared bill hold: brokers' disks, and FOCUS.

Source of FOCUS: FinOps Open Cost and Usage Specification 1.2, "Columns".
"""

from __future__ import annotations

from typing import Final

from headgate.pipeline.table import make_table

LOG_DIRS: Final = make_table(
    "log_dirs",
    "One row per replica of a partition: a snapshot of what brokers' disks hold (DescribeLogDirs).",
    ("taken_ms", "long", "when the brokers were asked, epoch ms"),
    ("broker_id", "int", "broker"),
    ("log_dir", "string", "its folder, as the broker names it"),
    ("topic", "string", "topic"),
    ("partition", "int", "partition"),
    ("bytes", "long", "size of the replica's log segments, bytes"),
    ("is_future", "bool", "a copy that is moving to another folder: it takes space as well"),
)

FOCUS: Final = make_table(
    "focus",
    "One row per (charge period, principal or topic, weight): a bill shared out, in the columns of "
    "FOCUS 1.2. What couldn't be attributed has rows of its own. Sums equal the bill.",
    ("BilledCost", "decimal", "this row's part of the bill, in BillingCurrency, to the cent"),
    ("BillingAccountId", "string", "the bill's account"),
    ("BillingAccountName", "string", "its name; null = none given"),
    ("BillingCurrency", "string", "ISO 4217"),
    ("BillingPeriodStart", "timestamp", "first moment of the bill's period, UTC"),
    ("BillingPeriodEnd", "timestamp", "first moment after it"),
    ("ChargeCategory", "string", "Usage; Adjustment of a part for which no use was seen"),
    ("ChargeClass", "string", "null: no row corrects an earlier bill"),
    ("ChargeDescription", "string", "what is charged, and to which principal or topic"),
    ("ChargeFrequency", "string", "Usage-Based, or One-Time of an Adjustment"),
    ("ChargePeriodStart", "timestamp", "start of the hour, day or month; of topics the bill's"),
    ("ChargePeriodEnd", "timestamp", "first moment after it"),
    ("ConsumedQuantity", "decimal", "what was used, in ConsumedUnit; null of an Adjustment"),
    ("ConsumedUnit", "string", "GB (10^9 bytes), Requests, Seconds, Connections or Partitions"),
    ("ContractedCost", "decimal", "BilledCost: a shared bill knows no unit prices"),
    ("EffectiveCost", "decimal", "BilledCost"),
    ("InvoiceId", "string", "the bill's number; null = none given"),
    ("InvoiceIssuerName", "string", "who sent the bill"),
    ("ListCost", "decimal", "BilledCost"),
    ("PricingQuantity", "decimal", "ConsumedQuantity"),
    ("PricingUnit", "string", "ConsumedUnit"),
    ("ProviderName", "string", "whose service it is"),
    ("PublisherName", "string", "who made it"),
    ("ResourceId", "string", "user:NAME or topic:NAME; null where nobody is known"),
    ("ResourceName", "string", "NAME, raw"),
    ("ResourceType", "string", "Principal or Topic"),
    ("ServiceCategory", "string", "Integration"),
    ("ServiceName", "string", "Apache Kafka, or what the bill says"),
    ("ServiceSubcategory", "string", "Messaging"),
    ("SubAccountId", "string", "owner, from the owners file; null = none"),
    ("SubAccountName", "string", "owner"),
    ("Tags", "string", "the owner's labels, a JSON object; null = none"),
    ("x_AllocatedBy", "string", "the weight that the row is about: bytes_in, ..., partitions"),
    ("x_IsAttributed", "bool", "false: nobody was seen, or no owner has it (with owners given)"),
)
