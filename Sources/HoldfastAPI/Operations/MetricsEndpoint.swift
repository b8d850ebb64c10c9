import Bucketing
import Chronology
import Glibc
import HTTPServer
import HoldfastCore
import Storage
import Tracing
internal import Synchronization

/// `GET /metrics`, in the text format of Prometheus 0.0.4.
///
/// Event loops count their own requests, connections and cache hits, which are added up here. All other metrics are
/// about the whole process.
struct MetricsEndpoint {
    let services: Services

    func get(_ request: borrowing Request, _ call: Call) async -> Response {
        let text = Self.text(await services.collector.collect(), services)
        return Response(.ok, contentType: "text/plain; version=0.0.4; charset=utf-8", body: .bytes(Array(text.utf8)))
    }

    /// Returns all metrics as text.
    ///
    /// - Parameter snapshots: the metrics of each event loop.
    private static func text(_ snapshots: [LoopSnapshot], _ services: Services) -> String {
        var page = MetricsPage()
        appendRequests(snapshots, to: &page)
        appendConnections(snapshots, to: &page)
        appendCache(snapshots, to: &page)
        page.single(
            "holdfast_store_readable", .gauge, "1, or 0 while lookups fail.",
            services.store.readFailure == nil ? 1 : 0)
        page.single(
            "holdfast_store_writable", .gauge, "1, or 0 after a write has failed until one as large succeeds.",
            services.store.writeFailure == nil ? 1 : 0)
        appendStore(services.store.metrics(), to: &page)
        appendDecisions(services, to: &page)
        appendChangeStreams(services.changes.statistics, to: &page)
        appendEvents(services, to: &page)
        appendIdentityKeys(services, to: &page)
        appendWarnings(services.monitor.findings, to: &page)
        appendWebhooks(services.webhooks.measures(), to: &page)
        page.single(
            "holdfast_refused_credentials_total", .counter,
            "Requests without permission: without a token, or with a wrong, expired or insufficient one.",
            services.refusals.count)
        appendAttributes(services, to: &page)
        appendTraces(services.options.tracing?.tracer.counts ?? Tracer.Counts(), to: &page)
        appendProcess(services.build, to: &page)
        return page.text
    }

    // MARK: Metrics of the event loops

    private static func appendRequests(_ snapshots: [LoopSnapshot], to page: inout MetricsPage) {
        guard let first = snapshots.first else { return }
        var metrics = first.metrics
        for snapshot in snapshots.dropFirst() { metrics.add(snapshot.metrics) }
        // All event loops have the same routes.
        let labels = first.routeLabels
        page.begin("holdfast_http_requests_total", .counter, "Requests with a response, by route and status.")
        for (route, label) in zip(metrics.routes, labels) {
            for status in route.statuses {
                page.sample("\(label),status=\"\(status.code)\"", status.count)
            }
        }
        page.begin(
            "holdfast_http_request_seconds", .histogram,
            "Time from the complete request, or the head of a streamed one, to the written response.")
        // Latencies are measured in nanoseconds.
        for (route, label) in zip(metrics.routes, labels) where !route.statuses.isEmpty {
            page.histogram(
                label, bounds: LatencyHistogram.bounds.map { Double($0) / 1e9 }, counts: route.seconds.counts,
                sum: Double(route.seconds.sum) / 1e9)
        }
    }

    private static func appendConnections(_ snapshots: [LoopSnapshot], to page: inout MetricsPage) {
        let all = snapshots.map(\.connections)
        page.single("holdfast_connections", .gauge, "Connections open now.", all.map(\.open).reduce(0, +))
        page.single(
            "holdfast_connections_accepted_total", .counter, "Connections accepted.", all.map(\.accepted).reduce(0, &+))
        page.single(
            "holdfast_connections_refused_total", .counter, "Connections refused because there were too many.",
            all.map(\.refused).reduce(0, &+))
        page.single(
            "holdfast_http_overload_refusals_total", .counter,
            "Requests refused because the event loop was behind, or unfinished requests took too much memory.",
            all.map(\.overloaded).reduce(0, &+))
        page.single(
            "holdfast_connections_timed_out_total", .counter, "Connections closed because of a timeout.",
            all.map(\.timedOut).reduce(0, &+))
        page.single(
            "holdfast_received_bytes_total", .counter, "Bytes received.", all.map(\.bytesReceived).reduce(0, &+))
        page.single("holdfast_sent_bytes_total", .counter, "Bytes sent.", all.map(\.bytesSent).reduce(0, &+))
    }

    private static func appendCache(_ snapshots: [LoopSnapshot], to page: inout MetricsPage) {
        let all = snapshots.map(\.cache)
        page.single(
            "holdfast_cache_hits_total", .counter, "Lookups served from memory.", all.map(\.hits).reduce(0, &+))
        page.single(
            "holdfast_cache_misses_total", .counter, "Lookups that asked the store.", all.map(\.misses).reduce(0, &+))
        page.single("holdfast_cache_bytes", .gauge, "Bytes that the cache uses.", all.map(\.bytes).reduce(0, +))
        page.single("holdfast_cache_entries", .gauge, "Profiles in the cache.", all.map(\.entries).reduce(0, +))
    }

    // MARK: Metrics of the process

    private static func appendWebhooks(_ measures: [WebhookSender.Measure], to page: inout MetricsPage) {
        func label(_ measure: WebhookSender.Measure) -> String { "webhook=\"\(measure.key)\"" }
        page.begin(
            "holdfast_webhook_lag_seconds", .gauge,
            "Since when the oldest event waits for its delivery; 0 if none does.")
        for measure in measures { page.sample(label(measure), measure.lagSeconds) }
        page.begin(
            "holdfast_webhook_paused", .gauge, "1 if the webhook is paused, because its receiver failed for too long.")
        for measure in measures { page.sample(label(measure), measure.isPaused ? 1 : 0) }
        page.begin("holdfast_webhook_deliveries_total", .counter, "Attempts of this process to deliver an event.")
        for measure in measures {
            page.sample(label(measure) + ",outcome=\"accepted\"", measure.accepted)
            page.sample(label(measure) + ",outcome=\"failed\"", measure.failed)
        }
    }

    /// Appends the metrics that all stores have, and then those of this kind of store.
    private static func appendStore(_ store: StoreMetrics, to page: inout MetricsPage) {
        page.single("holdfast_profiles", .gauge, "Profiles stored.", store.profiles)
        page.single("holdfast_assignments", .gauge, "Assignments stored.", store.assignments)
        page.single(
            "holdfast_store_waiting_changes", .gauge, "Changes that wait for their commit.", store.waitingChanges)
        page.single(
            "holdfast_store_waiting_bytes", .gauge, "Memory of changes that wait for their commit, estimated.",
            store.waitingBytes)
        page.single("holdfast_store_commits_total", .counter, "Commits done.", store.commits)
        page.single("holdfast_store_changes_total", .counter, "Changes committed.", store.changes)
        page.single(
            "holdfast_store_failed_changes_total", .counter, "Changes that failed or that a rule refused.",
            store.failedChanges)
        page.single(
            "holdfast_store_refused_changes_total", .counter,
            "Changes refused because too many waited, or too large ones, or for too long.",
            store.refusedChanges)
        page.single(
            "holdfast_store_expired_assignments_total", .counter, "Assignments that retention deleted.",
            store.expiredAssignments)
        page.single(
            "holdfast_audit_entries_total", .counter, "Entries that this process made in the audit log.",
            store.auditEntries)
        page.single(
            "holdfast_audit_entries_deleted_total", .counter, "Entries of the audit log that retention deleted.",
            store.deletedAuditEntries)
        page.single("holdfast_feed_rows", .gauge, "Transactions that the feed keeps.", store.feed.rows)
        page.single("holdfast_feed_bytes", .gauge, "Bytes of the changes that the feed keeps.", store.feed.bytes)
        page.single(
            "holdfast_feed_oldest_seconds", .gauge,
            "When the oldest change of the feed was recorded, in seconds since 1970.",
            store.feed.oldest?.secondsSince1970 ?? 0)
        for metric in store.own {
            page.single(metric.name, metric.kind == .counter ? .counter : .gauge, metric.help, metric.text)
        }
        page.histogram(
            "holdfast_store_commit_seconds", "Time that a commit took, from begin to durable.", store.commitSeconds)
        page.histogram("holdfast_store_batch_changes", "Changes in one commit.", store.batchSizes)
    }

    private static func appendDecisions(_ services: Services, to page: inout MetricsPage) {
        page.begin("holdfast_decisions_total", .counter, "Decisions, by where the variation came from.")
        for source in DecisionSource.allCases {
            page.sample("source=\"\(source.rawValue)\"", services.decisions.value(source))
        }
        page.begin(
            "holdfast_client_evaluations_total", .counter,
            "Evaluations that client libraries reported, by flag, variation and reason.")
        for (series, count) in services.reportedEvaluations.all {
            let labels = [
                ("sdk_key", series.sdkKey), ("flag", series.flagKey?.string ?? ""),
                ("variation", series.variationKey?.string ?? ""), ("reason", series.reason.rawValue),
            ]
            page.sample(labels.map { "\($0)=\"\(MetricsPage.escaped($1))\"" }.joined(separator: ","), count)
        }
        page.begin("holdfast_datafile_version", .gauge, "The stored version of the active datafile.")
        for project in services.projects.snapshot().projects.values.sorted(by: { $0.sdkKey < $1.sdkKey }) {
            page.sample("sdk_key=\"\(project.sdkKey)\"", project.version)
        }
    }

    private static func appendChangeStreams(_ changes: ChangeFeed.Statistics, to page: inout MetricsPage) {
        page.single("holdfast_change_streams", .gauge, "Streams of changes open now.", changes.open)
        page.single("holdfast_change_events_total", .counter, "Changes sent to streams.", changes.events)
        page.single(
            "holdfast_change_streams_refused_total", .counter, "Streams refused because there were too many.",
            changes.refused)
    }

    private static func appendEvents(_ services: Services, to page: inout MetricsPage) {
        let events = services.events.statistics
        page.single("holdfast_events_waiting", .gauge, "Events that wait for their commit.", events.waiting)
        page.begin("holdfast_events_stored_total", .counter, "Exposures and goal events stored.")
        page.sample("kind=\"exposure\"", events.storedExposures)
        page.sample("kind=\"goal\"", events.storedGoals)
        page.single("holdfast_events_repeated_total", .counter, "Events that were known already.", events.repeated)
        page.single(
            "holdfast_exposures_not_running_total", .counter,
            "Exposures that happened while their experiment was not running, which results do not count.",
            events.notRunning)
        page.single(
            "holdfast_events_erased_total", .counter,
            "Events of edges that were dropped, because their users were erased after they were accepted.",
            events.erased)
        page.single("holdfast_events_failed_total", .counter, "Events that could not be stored.", events.failed)
        page.single(
            "holdfast_sdk_events_refused_total", .counter, "Events of SDKs that were left out.",
            services.refusedEvents.load(ordering: .relaxed))
        page.single(
            "holdfast_sdk_amounts_ignored_total", .counter,
            "Amounts in tags of Optimizely's SDKs that are no usable numbers; their events count without.",
            services.ignoredAmounts.load(ordering: .relaxed))
        page.single(
            "holdfast_events_dropped_total", .counter,
            "Exposures of decisions for which there was no room, and events while the server is read-only.",
            events.dropped)
        page.single(
            "holdfast_bucketeer_metrics_events_total", .counter,
            "Events in which Bucketeer's SDKs report latency, sizes and errors; they are only counted.",
            services.bucketeer.reported)
    }

    /// Appends the age of the identity provider's keys, and the failures to fetch them.
    private static func appendIdentityKeys(_ services: Services, to page: inout MetricsPage) {
        // Keys that are read from a file do not age.
        let keys = services.access.identityKeys.flatMap { $0.areFetched ? $0 : nil }
        page.single(
            "holdfast_identity_keys_age_seconds", .gauge,
            "Time since the keys of the identity provider were fetched, or since the start; 0 if they need not be.",
            keys.map { max(.zero, systemWallClock() - $0.readAt).milliseconds / 1_000 } ?? 0)
        page.single(
            "holdfast_identity_keys_failures_total", .counter,
            "How often the keys of the identity provider could not be fetched.", keys?.failures ?? 0)
    }

    /// Appends the warnings of experiments that are not paused, at most ``ExperimentMonitor/measuredLimit``.
    private static func appendWarnings(_ findings: [ExperimentMonitor.Finding], to page: inout MetricsPage) {
        page.begin(
            "holdfast_experiment_warning", .gauge, "1 while somebody should look at an experiment, by the reason.")
        for finding in findings.lazy.filter({ !$0.isPaused }).prefix(ExperimentMonitor.measuredLimit) {
            let experiment =
                "sdk_key=\"\(finding.sdkKey)\",experiment=\"\(MetricsPage.escaped(finding.key.string))\""
            for warning in ExperimentWarning.allCases {
                page.sample("\(experiment),warning=\"\(warning.rawValue)\"", finding.warnings.contains(warning) ? 1 : 0)
            }
        }
    }

    private static func appendAttributes(_ services: Services, to page: inout MetricsPage) {
        let schema = services.projects.snapshot().schema
        let totals = services.attributeMetrics.totals
        page.single("holdfast_attributes", .gauge, "Attributes defined.", schema.attributes.count)
        page.single("holdfast_segments", .gauge, "Segments defined.", schema.segments.count)
        page.begin(
            "holdfast_attribute_values_total", .counter, "Values of attributes that single requests set or removed.")
        page.sample("outcome=\"changed\"", totals.changed)
        page.sample("outcome=\"unchanged\"", totals.unchanged)
        page.single("holdfast_segment_scans_total", .counter, "Scans of users for a segment.", totals.scans)
        page.single(
            "holdfast_segment_users_examined_total", .counter, "Users examined for segments.",
            totals.examined)
    }

    private static func appendTraces(_ spans: Tracer.Counts, to page: inout MetricsPage) {
        page.single("holdfast_trace_spans_sent_total", .counter, "Spans that the collector has taken.", spans.sent)
        page.single(
            "holdfast_trace_spans_dropped_total", .counter,
            "Spans that the collector has refused, or that came while it was away and too many waited.", spans.dropped)
    }

    private static func appendProcess(_ build: BuildInfo, to page: inout MetricsPage) {
        let process = ProcessMetrics.now()
        page.single("process_resident_memory_bytes", .gauge, "Resident memory.", process.residentBytes)
        page.single("process_open_fds", .gauge, "Open file descriptors.", process.openDescriptors)
        page.single("process_max_fds", .gauge, "Maximum number of open file descriptors.", process.maximumDescriptors)
        page.single("process_cpu_seconds_total", .counter, "User and system CPU time.", process.cpuSeconds)
        page.single(
            "process_start_time_seconds", .gauge, "Start time of the process in seconds since 1970.", build.startedAt)
        page.begin("holdfast_build_info", .gauge, "What is running; always 1.")
        page.sample("version=\"\(build.version)\"", 1)
    }
}
