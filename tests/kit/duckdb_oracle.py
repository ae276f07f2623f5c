"""
Usage and quota resolution over a request log, once more and independently: SQL on DuckDB.

Nothing of headgate is used. Sizes come from the log's JSON by the formulas of Kafka's message
schemas, written in SQL; who shares a quota by the two steps of Kafka's ClientQuotaManager.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb

_LINES = r"""
create or replace table lines as
select
  epoch_ms(strptime(line[2:20], '%Y-%m-%d %H:%M:%S')::timestamp)
    + case when strpos(line, ']') = 25 then line[22:24]::double
           else line[22:strpos(line, ']') - 1]::double / 1e6 end as log_ms,
  regexp_replace(line[strpos(line, '{'):], ' \(kafka.request.logger\)$', '') as j
from read_csv('{path}', columns = {'line': 'varchar'}, delim = '\x01', quote = '', escape = '',
              header = false, max_line_size = 67108864, auto_detect = false)
"""
_SIZES = """
create or replace macro v(n) as
  case when n < 128 then 1 when n < 16384 then 2 when n < 2097152 then 3
       when n < 268435456 then 4 else 5 end;
create or replace macro named(s) as v(strlen(s) + 1) + strlen(s);
create or replace macro topic_head(t, name, version) as
  case when version >= 13 then 16 else named(t->>name) end;
create or replace macro sum0(l) as coalesce(list_sum(l), 0)::bigint;
create or replace macro list(j, path) as coalesce(json_extract(j, path)::json[], []);

create or replace table requests as
select
  log_ms - (j->>'sendTimeMs')::double - (j->>'responseQueueTimeMs')::double as record_ms,
  (j->>'isForwarded')::boolean as forwarded,
  j->>'$.requestHeader.requestApiKeyName' as api,
  (j->>'$.requestHeader.requestApiVersion')::int as version,
  coalesce(j->>'$.requestHeader.clientId', '') as client_id,
  regexp_replace(j->>'principal', '^[^:]*:', '') as principal,
  (j->>'throttleTimeMs')::bigint as throttle_ms,
  (j->>'localTimeMs')::double as handler_ms,
  j
from lines;

create or replace macro r0(p) as
  coalesce(p->>'recordsSizeInBytes', p->>'recordSetSizeInBytes', '0')::bigint;
create or replace macro parts(t) as
  list_concat(list(t, '$.partitions'), list(t, '$.partitionResponses'));
create or replace macro aborted(p) as len(list(p, '$.abortedTransactions'));

create or replace table sized as
select *,
  case api
    when 'PRODUCE' then case when version >= 9 then
      11 + strlen(client_id)
      + (case when j->>'$.request.transactionalId' is null then 1
              else named(j->>'$.request.transactionalId') end)
      + 2 + 4 + v(len(list(j, '$.request.topicData')) + 1) + 1
      + sum0(list_transform(list(j, '$.request.topicData'), lambda t:
          topic_head(t, 'name', version) + v(len(list(t, '$.partitionData')) + 1) + 1
          + sum0(list_transform(list(t, '$.partitionData'), lambda p:
              4 + 1 + v(r0(p) + 1) + r0(p)))))
    else
      10 + strlen(client_id) + 10
      + (case when version >= 3 then 2 + coalesce(strlen(j->>'$.request.transactionalId'), 0)
              else 0 end)
      + sum0(list_transform(list(j, '$.request.topicData'), lambda t:
          6 + strlen(t->>'name')
          + sum0(list_transform(list(t, '$.partitionData'), lambda p: 8 + r0(p)))))
    end
    when 'FETCH' then case when throttle_ms > 0 then 0 when version >= 12 then
      4 + 4 + 2 + 4 + v(len(list(j, '$.response.responses')) + 1) + 1
      + sum0(list_transform(list(j, '$.response.responses'), lambda t:
          topic_head(t, 'topic', version) + v(len(parts(t)) + 1) + 1
          + sum0(list_transform(parts(t), lambda p:
              4 + 2 + 8 + 8 + 8 + 4 + 1
              + (case when json_type(p, '$.abortedTransactions') = 'NULL' then 1
                      else v(aborted(p) + 1) + 17 * aborted(p) end)
              + (case when json_exists(p, '$.currentLeader') then 11 else 0 end)
              + v(r0(p) + 1) + r0(p)))))
    else
      8 + (case when version >= 1 then 4 else 0 end) + (case when version >= 7 then 6 else 0 end)
      + sum0(list_transform(list(j, '$.response.responses'), lambda t:
          6 + strlen(t->>'topic')
          + sum0(list_transform(parts(t), lambda p:
              18 + (case when version >= 4 then 12 + 16 * aborted(p) else 0 end)
              + (case when version >= 5 then 8 else 0 end)
              + (case when version >= 11 then 4 else 0 end) + r0(p)))))
    end
    else 0 end as bytes
from requests
"""
# ClientQuotaManager.DefaultQuotaCallback: first the tags, then the limit for those tags.
_RESOLVE = """
create or replace table {name} as
with mine as (select * from quotas where key = '{key}'),
flags as (
  select bool_or(u is not null and c is null) as by_user,
         bool_or(u is null and c is not null) as by_client,
         bool_or(u is not null and c is not null) as by_pair
  from mine),
clients as (select distinct principal, client_id from sized),
ranked as (
  select w.principal, w.client_id, m.u is not null as has_user, m.c is not null as has_client,
    case when not m.u_default and m.c is not null and not m.c_default then 1
         when not m.u_default and m.c_default then 2
         when not m.u_default and m.c is null then 3
         when m.u_default and m.c is not null and not m.c_default then 4
         when m.u_default and m.c_default then 5 else 6 end as level
  from clients w join mine m
    on m.u is not null and (m.u_default or m.u = w.principal)
    and (m.c is null or m.c_default or m.c = w.client_id)),
best as (
  select principal, client_id, arg_min(has_client, level) as with_client
  from ranked group by all),
tags as (
  select w.principal, w.client_id,
    case when by_user and not by_client and not by_pair then w.principal
         when by_pair and not by_user and not by_client then w.principal
         when not by_user and not by_pair then ''
         when b.principal is null then '' else w.principal end as user_tag,
    case when by_user and not by_client and not by_pair then ''
         when b.principal is not null and not b.with_client then '' else w.client_id end
      as client_tag
  from clients w cross join (select coalesce(by_user, false) as by_user,
    coalesce(by_client, false) as by_client, coalesce(by_pair, false) as by_pair from flags)
  left join best b on b.principal = w.principal and b.client_id = w.client_id)
select *, (
    select arg_min(value, level) from (
      select m.value,
        case when m.u_default then 4 else 0 end + case when m.c_default then 1 else 0 end as level
      from mine m
      where (m.u is null) = (t.user_tag = '') and (m.c is null) = (t.client_tag = '')
        and (m.u is null or m.u_default or m.u = t.user_tag)
        and (m.c is null or m.c_default or m.c = t.client_tag))) as quota
from tags t
"""
_KEYS = {"PRODUCE": "producer_byte_rate", "FETCH": "consumer_byte_rate"}


def usage(log: Path, quotas: Path) -> list[tuple[Any, ...]]:
    """
    Return (quota_type, quota_id, quota, second_ms, requests, bytes, throttle ms), of byte rates.

    Args:
        log: a request log of the stock pattern (or with nanoseconds ``n``), of Kafka 2.8 or newer.
        quotas: the JSON beside it.
    """
    db = duckdb.connect()
    db.execute("set threads = 1")
    db.execute(_LINES.replace("{path}", str(log)))
    db.execute(_SIZES)
    db.execute(
        "create table quotas (u varchar, u_default boolean, c varchar, c_default boolean, "
        "key varchar, value double)"
    )
    for quota in json.loads(quotas.read_text())["quotas"]:
        entity = quota["entity"]
        names = []
        for part in ("user", "client"):
            default = part in entity and entity[part] is None
            names += ["" if default else entity.get(part), default]
        for key, value in quota["config"].items():
            db.execute("insert into quotas values (?, ?, ?, ?, ?, ?)", [*names, key, value])
    out: list[tuple[Any, ...]] = []
    for api, key in _KEYS.items():
        db.execute(_RESOLVE.format(name=key, key=key))
        out += db.execute(
            f"""
            select '{key}', url_encode(user_tag) || ':' || client_tag, quota,
              (floor(record_ms / 1000) * 1000)::bigint, count(*), sum(bytes)::bigint,
              sum(throttle_ms)::bigint
            from sized join {key} using (principal, client_id)
            where api = '{api}' and not forwarded
            group by all
            """
        ).fetchall()
    return sorted(out, key=str)
