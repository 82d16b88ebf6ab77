-- Views over the result tables, for DuckDB. Two rules hold in all of them:
--   * only concluded runs count: those with a row in `runs`;
--   * "current" means the latest concluded run that looked at the unit, not the latest run of the site.
-- A unit's owner is the node or switch it is part of: `gpu-001` for `gpu-001/mlx5_3`.

CREATE MACRO owner_of(unit) AS split_part(unit, '/', 1);

-- Runs that were concluded, each once.
CREATE VIEW concluded_runs AS
SELECT * FROM runs
QUALIFY row_number() OVER (PARTITION BY site, run ORDER BY produced_at DESC) = 1;

-- What `measurements` reads: concluded runs, and the one that is being judged (relation `open_runs`, empty for readers).
CREATE VIEW measured_runs AS
SELECT site, run FROM concluded_runs UNION SELECT site, run FROM open_runs;

-- The latest value of every attribute. `is_current` is false when the owner's latest run no longer has the attribute.
CREATE VIEW current_facts AS
WITH landed AS (
    SELECT *, max(produced_at) OVER (PARTITION BY site, owner_of(unit)) AS owner_at
    FROM facts SEMI JOIN concluded_runs USING (site, run)
)
SELECT site, owner_of(unit) AS owner, unit, unit_kind, attribute, state, value, detail, command,
       run, produced_at, origin, evidence, produced_at = owner_at AS is_current
FROM landed
QUALIFY row_number() OVER (PARTITION BY site, unit, attribute ORDER BY produced_at DESC, run DESC) = 1;

-- Every change of an attribute between two neighbouring runs that could read it. What could not be read
-- (state `error`) is unknown, so it is neither a change nor an end of the series.
CREATE VIEW fact_changes AS
WITH series AS (
    SELECT site, unit, unit_kind, attribute, state, value, run, produced_at, origin, evidence,
           lag(state) OVER s AS previous_state,
           lag(value) OVER s AS previous_value,
           lag(run) OVER s AS previous_run,
           lag(produced_at) OVER s AS previous_at,
           lag(evidence) OVER s AS previous_evidence
    FROM facts SEMI JOIN concluded_runs USING (site, run)
    WHERE state <> 'error'
    WINDOW s AS (PARTITION BY site, unit, attribute ORDER BY produced_at, run)
)
SELECT site, owner_of(unit) AS owner, unit, unit_kind, attribute,
       previous_state, previous_value, previous_run, previous_at, previous_evidence,
       state, value, run, produced_at, evidence, origin
FROM series
WHERE previous_run IS NOT NULL
  AND (state, value) IS DISTINCT FROM (previous_state, previous_value);

-- The latest run in which each unit was in scope of each check, and when it was last judged.
CREATE VIEW coverage_latest AS
SELECT site, "check", unit, unit_kind,
       arg_max(state, produced_at) AS state,
       nullif(arg_max(coalesce(reason, ''), produced_at), '') AS reason,
       arg_max(run, produced_at) AS run,
       max(produced_at) AS produced_at,
       max(produced_at) FILTER (WHERE state = 'judged') AS last_judged_at,
       count(*) AS runs_in_scope,
       count(*) FILTER (WHERE state = 'judged') AS runs_judged
FROM coverage SEMI JOIN concluded_runs USING (site, run)
GROUP BY ALL;

-- Findings of each unit's latest run and, where that could not judge the unit, of the latest one that could: what is
-- wrong stays so until somebody looks. A finding on something that no check covers by itself (a rail, the site) is
-- current while the check's latest run shows it.
CREATE VIEW current_findings AS
WITH latest_check AS (
    SELECT site, "check", arg_max(run, produced_at) AS run
    FROM coverage SEMI JOIN concluded_runs USING (site, run)
    GROUP BY ALL
),
looked AS (
    SELECT site, "check", unit, arg_max(run, produced_at) AS run
    FROM coverage SEMI JOIN concluded_runs USING (site, run)
    WHERE state <> 'not_judged'
    GROUP BY ALL
)
SELECT f.*
FROM findings f
LEFT JOIN coverage_latest u ON u.site = f.site AND u."check" = f."check" AND u.unit = owner_of(f.unit)
LEFT JOIN looked l ON l.site = f.site AND l."check" = f."check" AND l.unit = owner_of(f.unit)
LEFT JOIN latest_check c ON c.site = f.site AND c."check" = f."check"
WHERE f.run = coalesce(u.run, c.run) OR f.run = l.run
QUALIFY row_number() OVER (PARTITION BY f.site, f.finding ORDER BY f.produced_at DESC) = 1;

-- Each finding once, with its history. `open`: it is one of the current findings.
CREATE VIEW findings_history AS
SELECT f.site, f.finding, f."check", f.rule, f.unit, f.unit_kind, f.metric,
       arg_max(f.severity, f.produced_at) AS severity,
       arg_max(f.kind, f.produced_at) AS kind,
       arg_max(f.summary, f.produced_at) AS summary,
       min(f.produced_at) AS first_seen,
       max(f.produced_at) AS last_seen,
       arg_min(f.run, f.produced_at) AS first_run,
       arg_max(f.run, f.produced_at) AS last_run,
       count(DISTINCT f.run) AS runs,
       bool_or(o.finding IS NOT NULL) AS open
FROM (SELECT * FROM findings SEMI JOIN concluded_runs USING (site, run)) f
LEFT JOIN (SELECT DISTINCT site, finding FROM current_findings) o ON o.site = f.site AND o.finding = f.finding
GROUP BY f.site, f.finding, f."check", f.rule, f.unit, f.unit_kind, f.metric;

-- Differences to golden configs in each switch's latest run that read its config.
CREATE VIEW drift_open AS
WITH latest AS (
    SELECT site, switch, arg_max(run, produced_at) AS run
    FROM switch_configs SEMI JOIN concluded_runs USING (site, run)
    GROUP BY ALL
)
SELECT d.*
FROM config_drift d SEMI JOIN latest USING (site, switch, run)
WHERE d.against = 'golden';

-- What changed on switches between neighbouring runs, newest first.
CREATE VIEW config_changes AS
SELECT * FROM config_drift SEMI JOIN concluded_runs USING (site, run)
WHERE against = 'previous'
ORDER BY produced_at DESC, switch, path;

CREATE MACRO growth(before, after) AS CASE WHEN after >= before THEN after - before END;

-- Counter growth of NIC ports between neighbouring runs. A counter that went back was reset (reboot, port bounce): its
-- growth is unknown, hence null, as is that of a counter that either run could not read.
CREATE VIEW link_counter_deltas AS
SELECT site, node, nic, port, run, produced_at, origin,
       lag(run) OVER s AS previous_run,
       lag(produced_at) OVER s AS previous_at,
       date_diff('second', lag(produced_at) OVER s, produced_at) AS seconds,
       growth(lag(tx_packets) OVER s, tx_packets) AS tx_packets,
       growth(lag(rx_packets) OVER s, rx_packets) AS rx_packets,
       growth(lag(symbol_errors) OVER s, symbol_errors) AS symbol_errors,
       growth(lag(link_downed) OVER s, link_downed) AS link_downed,
       growth(lag(link_error_recovery) OVER s, link_error_recovery) AS link_error_recovery,
       growth(lag(port_rcv_errors) OVER s, port_rcv_errors) AS port_rcv_errors,
       growth(lag(port_xmit_discards) OVER s, port_xmit_discards) AS port_xmit_discards,
       growth(lag(carrier_changes) OVER s, carrier_changes) AS carrier_changes,
       growth(lag(port_rcv_errors) OVER s, port_rcv_errors)
           / nullif(growth(lag(rx_packets) OVER s, rx_packets), 0) AS rx_error_ratio,
       coalesce(lag(rx_packets) OVER s > rx_packets OR lag(tx_packets) OVER s > tx_packets, false) AS was_reset
FROM links SEMI JOIN concluded_runs USING (site, run)
WINDOW s AS (PARTITION BY site, nic, port ORDER BY produced_at, run)
QUALIFY previous_run IS NOT NULL;

-- The same for switch ports.
CREATE VIEW switch_port_counter_deltas AS
SELECT site, switch, port, run, produced_at, origin,
       lag(run) OVER s AS previous_run,
       lag(produced_at) OVER s AS previous_at,
       date_diff('second', lag(produced_at) OVER s, produced_at) AS seconds,
       growth(lag(rx_packets) OVER s, rx_packets) AS rx_packets,
       growth(lag(tx_packets) OVER s, tx_packets) AS tx_packets,
       growth(lag(rx_errors) OVER s, rx_errors) AS rx_errors,
       growth(lag(tx_errors) OVER s, tx_errors) AS tx_errors,
       growth(lag(rx_discards) OVER s, rx_discards) AS rx_discards,
       growth(lag(tx_discards) OVER s, tx_discards) AS tx_discards,
       growth(lag(rx_pause_frames) OVER s, rx_pause_frames) AS rx_pause_frames,
       growth(lag(tx_pause_frames) OVER s, tx_pause_frames) AS tx_pause_frames,
       growth(lag(carrier_transitions) OVER s, carrier_transitions) AS carrier_transitions,
       growth(lag(rx_errors) OVER s, rx_errors)
           / nullif(growth(lag(rx_packets) OVER s, rx_packets), 0) AS rx_error_ratio,
       coalesce(lag(rx_packets) OVER s > rx_packets OR lag(tx_packets) OVER s > tx_packets, false) AS was_reset
FROM switch_ports SEMI JOIN concluded_runs USING (site, run)
WINDOW s AS (PARTITION BY site, switch, port ORDER BY produced_at, run)
QUALIFY previous_run IS NOT NULL;

-- Every number in one long shape. `launch` is 0 where a run measures once; `comparability` must be equal for two
-- values to be compared. What was not measured has no row.
CREATE VIEW measurements AS
WITH link_values AS (
    UNPIVOT (
        SELECT site, week, run, produced_at, origin, evidence, 'driver_firmware' AS "check", 'links' AS source,
               CASE WHEN port = 1 THEN nic ELSE nic || '/' || port END AS unit, 'nic' AS unit_kind,
               'link_layer=' || coalesce(link_layer, '?') AS comparability,
               rate_gbps,
               CAST(active_mtu_bytes AS DOUBLE) AS active_mtu_bytes,
               CAST(netdev_mtu_bytes AS DOUBLE) AS netdev_mtu_bytes,
               CAST(symbol_errors AS DOUBLE) AS symbol_errors,
               CAST(link_downed AS DOUBLE) AS link_downed,
               CAST(link_error_recovery AS DOUBLE) AS link_error_recovery,
               CAST(port_rcv_errors AS DOUBLE) AS port_rcv_errors,
               CAST(port_xmit_discards AS DOUBLE) AS port_xmit_discards,
               CAST(tx_packets AS DOUBLE) AS tx_packets,
               CAST(rx_packets AS DOUBLE) AS rx_packets,
               CAST(carrier_changes AS DOUBLE) AS carrier_changes
        FROM links SEMI JOIN measured_runs USING (site, run)
    )
    ON rate_gbps, active_mtu_bytes, netdev_mtu_bytes, symbol_errors, link_downed, link_error_recovery,
       port_rcv_errors, port_xmit_discards, tx_packets, rx_packets, carrier_changes
    INTO NAME metric VALUE value
),
port_values AS (
    UNPIVOT (
        SELECT site, week, run, produced_at, origin, evidence, 'switch_config' AS "check", 'switch_ports' AS source,
               switch || '/' || port AS unit, 'port' AS unit_kind, '' AS comparability,
               speed_gbps,
               CAST(mtu_bytes AS DOUBLE) AS mtu_bytes,
               CAST(rx_packets AS DOUBLE) AS rx_packets,
               CAST(tx_packets AS DOUBLE) AS tx_packets,
               CAST(rx_errors AS DOUBLE) AS rx_errors,
               CAST(tx_errors AS DOUBLE) AS tx_errors,
               CAST(rx_discards AS DOUBLE) AS rx_discards,
               CAST(tx_discards AS DOUBLE) AS tx_discards,
               CAST(rx_pause_frames AS DOUBLE) AS rx_pause_frames,
               CAST(tx_pause_frames AS DOUBLE) AS tx_pause_frames,
               CAST(carrier_transitions AS DOUBLE) AS carrier_transitions
        FROM switch_ports SEMI JOIN measured_runs USING (site, run)
    )
    ON speed_gbps, mtu_bytes, rx_packets, tx_packets, rx_errors, tx_errors, rx_discards, tx_discards,
       rx_pause_frames, tx_pause_frames, carrier_transitions
    INTO NAME metric VALUE value
),
fabric_values AS (
    UNPIVOT (
        SELECT site, week, run, produced_at, origin, evidence, 'fabric_links' AS "check", 'fabric_ports' AS source,
               fabric || '/' || node || '/' || port AS unit, 'port' AS unit_kind,
               'link=' || coalesce(link, '?') AS comparability,
               CAST(width AS DOUBLE) AS width,
               lane_gbps,
               CAST(symbol_error AS DOUBLE) AS symbol_error,
               CAST(link_error_recovery AS DOUBLE) AS link_error_recovery,
               CAST(link_downed AS DOUBLE) AS link_downed,
               CAST(rcv_errors AS DOUBLE) AS rcv_errors,
               CAST(xmit_discards AS DOUBLE) AS xmit_discards,
               CAST(xmit_wait AS DOUBLE) AS xmit_wait,
               CAST(xmit_data_bytes AS DOUBLE) AS xmit_data_bytes,
               CAST(rcv_data_bytes AS DOUBLE) AS rcv_data_bytes
        FROM fabric_ports SEMI JOIN measured_runs USING (site, run)
    )
    ON width, lane_gbps, symbol_error, link_error_recovery, link_downed, rcv_errors, xmit_discards, xmit_wait,
       xmit_data_bytes, rcv_data_bytes
    INTO NAME metric VALUE value
),
store_values AS (
    UNPIVOT (
        SELECT o.site, o.week, o.run, o.produced_at, o.origin, o.evidence, 'object_store' AS "check",
               'object_store' AS source, o.store AS unit, 'object_store' AS unit_kind,
               CAST(regexp_extract(o.launch, '([0-9]+)$', 1) AS INTEGER) AS launch,
               concat(o.comparability, ';erasure=', coalesce('EC:' || c.parity || '/' || c.drives_per_set, '?'))
                   AS comparability,
               o.mib_per_s, o.objects_per_s, CAST(o.errors AS DOUBLE) AS errors,
               o.ttfb_avg_ms, o.ttfb_p50_ms, o.ttfb_p90_ms, o.ttfb_p99_ms,
               o.latency_avg_ms, o.latency_p50_ms, o.latency_p90_ms, o.latency_p99_ms
        FROM (SELECT * FROM object_store SEMI JOIN measured_runs USING (site, run)) o
        LEFT JOIN object_store_clusters c ON c.site = o.site AND c.run = o.run AND c.store = o.store
        WHERE o.problem IS NULL
    )
    ON mib_per_s, objects_per_s, errors, ttfb_avg_ms, ttfb_p50_ms, ttfb_p90_ms, ttfb_p99_ms,
       latency_avg_ms, latency_p50_ms, latency_p90_ms, latency_p99_ms
    INTO NAME metric VALUE value
),
collective_values AS (
    UNPIVOT (
        SELECT site, week, run, produced_at, origin, evidence, 'collectives' AS "check", 'collectives' AS source,
               CAST(regexp_extract(launch, '([0-9]+)$', 1) AS INTEGER) AS launch,
               CASE WHEN group_kind = 'all' THEN engine ELSE "group" END AS unit,
               CASE WHEN group_kind = 'all' THEN 'benchmark' ELSE group_kind END AS unit_kind,
               comparability, busbw_gbps, algbw_gbps, time_us, time_cv
        FROM collectives SEMI JOIN measured_runs USING (site, run)
        WHERE coalesce(wrong, 0) = 0 AND "group" NOT LIKE '%:slowest'
    )
    ON busbw_gbps, algbw_gbps, time_us, time_cv
    INTO NAME metric VALUE value
),
pair_values AS (
    UNPIVOT (
        SELECT site, week, run, produced_at, origin, evidence, 'collectives' AS "check", 'point_to_point' AS source,
               CAST(regexp_extract(launch, '([0-9]+)$', 1) AS INTEGER) AS launch,
               pair || '/' || device AS unit, 'link' AS unit_kind,
               'test=' || test || ';size_bytes=' || size_bytes || ';mtu=' || coalesce(CAST(mtu_bytes AS VARCHAR), '?')
                   || ';link=' || coalesce(link_layer, '?') || ';memory=' || coalesce(memory, '?') AS comparability,
               bw_peak_gbitps, bw_average_gbitps, message_rate_mpps, latency_typical_us, latency_avg_us, latency_p99_us
        FROM point_to_point SEMI JOIN measured_runs USING (site, run)
    )
    ON bw_peak_gbitps, bw_average_gbitps, message_rate_mpps, latency_typical_us, latency_avg_us, latency_p99_us
    INTO NAME metric VALUE value
),
serving_values AS (
    UNPIVOT (
        -- Repeats within a launch are no samples of their own: a launch counts with its median.
        SELECT site, week, run, max(produced_at) AS produced_at, any_value(origin) AS origin,
               any_value(evidence) AS evidence, 'model_eval' AS "check", 'model_serving' AS source, unit,
               'model' AS unit_kind, CAST(regexp_extract(launch, '([0-9]+)$', 1) AS INTEGER) AS launch, comparability,
               median(output_tokens_per_s) AS output_tokens_per_s, median(requests_per_s) AS requests_per_s,
               median(ttft_p50_ms) AS ttft_p50_ms, median(ttft_p99_ms) AS ttft_p99_ms,
               median(tpot_p50_ms) AS tpot_p50_ms, median(itl_p50_ms) AS itl_p50_ms, median(itl_p99_ms) AS itl_p99_ms,
               median(e2el_p50_ms) AS e2el_p50_ms, median(e2el_p99_ms) AS e2el_p99_ms
        FROM model_serving SEMI JOIN measured_runs USING (site, run)
        WHERE problem IS NULL
        GROUP BY site, week, run, launch, unit, comparability
    )
    ON output_tokens_per_s, requests_per_s, ttft_p50_ms, ttft_p99_ms, tpot_p50_ms, itl_p50_ms, itl_p99_ms,
       e2el_p50_ms, e2el_p99_ms
    INTO NAME metric VALUE value
),
quantization_values AS (
    UNPIVOT (
        SELECT site, week, run, produced_at, origin, evidence, 'model_eval' AS "check", 'quantizations' AS source,
               unit, 'model' AS unit_kind,
               concat('model=', model, ';scheme=', scheme, ';revision=', coalesce(source_sha256[1:12], '?'),
                      ';recipe=', coalesce(recipe_sha256[1:12], '?'), ';device=', coalesce(device, '?'))
                   AS comparability,
               size_ratio, quantise_s, duration_s, peak_memory_mib
        FROM quantizations SEMI JOIN measured_runs USING (site, run)
        WHERE problem IS NULL
    )
    ON size_ratio, quantise_s, duration_s, peak_memory_mib
    INTO NAME metric VALUE value
),
server_values AS (
    UNPIVOT (
        SELECT site, week, run, produced_at, origin, evidence, 'model_eval' AS "check", 'model_servers' AS source,
               unit, 'model' AS unit_kind, CAST(regexp_extract(launch, '([0-9]+)$', 1) AS INTEGER) AS launch,
               coalesce(comparability, '?') AS comparability, start_s, peak_memory_mib
        FROM model_servers SEMI JOIN measured_runs USING (site, run)
        WHERE problem IS NULL
    )
    ON start_s, peak_memory_mib
    INTO NAME metric VALUE value
),
elastic_values AS (
    UNPIVOT (
        SELECT site, week, run, produced_at, origin, evidence, 'elastic_training' AS "check", 'elastic_runs' AS source,
               regexp_replace(launch, '-[0-9]+$', '') AS unit, 'job' AS unit_kind,
               CAST(regexp_extract(launch, '([0-9]+)$', 1) AS INTEGER) AS launch, comparability,
               start_s, stall_s, CAST(restarts AS DOUBLE) AS restarts, loss_last
        FROM elastic_runs SEMI JOIN measured_runs USING (site, run)
        WHERE problem IS NULL
    )
    ON start_s, stall_s, restarts, loss_last
    INTO NAME metric VALUE value
),
recovery_values AS (
    UNPIVOT (
        SELECT r.site, r.week, r.run, r.produced_at, r.origin, r.evidence, 'elastic_training' AS "check",
               'elastic_recoveries' AS source, regexp_replace(r.launch, '-[0-9]+$', '') AS unit, 'job' AS unit_kind,
               CAST(regexp_extract(r.launch, '([0-9]+)$', 1) AS INTEGER) AS launch,
               concat(e.comparability, ';fault=', r.fault, ' ', r.kind) AS comparability,
               r.detected_s, r.rendezvous_s, r.resumed_s, r.replaced_s, CAST(r.lost_steps AS DOUBLE) AS lost_steps
        FROM (SELECT * FROM elastic_recoveries SEMI JOIN measured_runs USING (site, run)) r
        JOIN elastic_runs e ON e.site = r.site AND e.run = r.run AND e.launch = r.launch
        WHERE e.problem IS NULL
    )
    ON detected_s, rendezvous_s, resumed_s, replaced_s, lost_steps
    INTO NAME metric VALUE value
),
quality_values AS (
    -- A row is a metric already; tasks and their metrics are the harness's names.
    SELECT site, week, run, produced_at, origin, evidence, 'model_eval' AS "check", unit, 'model' AS unit_kind,
           CAST(regexp_extract(launch, '([0-9]+)$', 1) AS INTEGER) AS launch, comparability,
           CASE WHEN task = metric THEN metric ELSE task || ' ' || metric END AS metric, value, '1' AS unit_of_measure
    FROM model_quality SEMI JOIN measured_runs USING (site, run)
)
SELECT m.site, m.week, m.run, m.produced_at, m.launch, m."check", m.unit, m.unit_kind, m.metric, m.value,
       c.unit AS unit_of_measure, m.comparability, m.origin, m.evidence
FROM (
    SELECT *, 0 AS launch FROM link_values UNION ALL BY NAME SELECT *, 0 AS launch FROM port_values
    UNION ALL BY NAME SELECT *, 0 AS launch FROM fabric_values
    UNION ALL BY NAME SELECT * FROM store_values UNION ALL BY NAME SELECT * FROM collective_values
    UNION ALL BY NAME SELECT * FROM pair_values
    UNION ALL BY NAME SELECT * FROM serving_values UNION ALL BY NAME SELECT * FROM server_values
    UNION ALL BY NAME SELECT *, 0 AS launch FROM quantization_values
    UNION ALL BY NAME SELECT * FROM elastic_values UNION ALL BY NAME SELECT * FROM recovery_values
) m
JOIN table_columns c ON c."table" = m.source AND c."column" = m.metric
UNION ALL BY NAME
SELECT site, week, run, produced_at, launch, "check", unit, unit_kind, metric, value, unit_of_measure, comparability,
       origin, evidence
FROM quality_values;

-- What comparisons said, each run's verdict on the whole first.
CREATE VIEW verdict_history AS
SELECT v.site, v.produced_at, v.run, v.against, v.outcome, v.subject, v.subject_kind, v.role, v."check", v.metric,
       v.loss, v.loss_low, v.loss_high, v.value_before, v.value_after, v.unit_of_measure, v.reason, v.settle,
       a.attribute AS first_cause, a.before AS cause_before, a.after AS cause_after, a.changed_units
FROM verdicts v SEMI JOIN concluded_runs USING (site, run)
LEFT JOIN attributions a ON a.site = v.site AND a.run = v.run AND a.against = v.against AND a.rank = 1
ORDER BY v.produced_at DESC, v.subject_kind <> 'run', v.outcome, v.subject;

-- How each data-quality expectation fared over runs.
CREATE VIEW quality_trend AS
SELECT site, suite, expectation, subject,
       arg_max(severity, produced_at) AS severity,
       arg_max(success, produced_at) AS success,
       nullif(arg_max(coalesce(observed, ''), produced_at), '') AS observed,
       count(*) AS runs,
       count(*) FILTER (WHERE NOT success) AS runs_failed,
       max(produced_at) FILTER (WHERE NOT success) AS last_failed_at,
       max(produced_at) AS produced_at
FROM quality_results SEMI JOIN concluded_runs USING (site, run)
GROUP BY ALL;
