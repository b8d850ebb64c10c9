import Chronology
public import Storage
import StorageSQLite

/// The state of an edge for operators: properties for its status page, and metrics.
extension EdgeStore {
    /// The address of the upstream.
    public var upstreamURL: String { upstream.configuration.url }
    /// Whether the upstream responds.
    public var isUpstreamUp: Bool { upstream.isUp && upstream.secondsSinceContact != nil }
    /// Why the upstream is away, or another fault that an operator should repair; `nil` if there is none.
    public var failure: String? {
        if let failure = upstream.failure { return failure }
        let copyFails = applier.lacksWrites || base.writeFailure != nil
        return copyFails ? "the copy cannot be written; changes and events pass to the upstream" : nil
    }
    /// How far this host's clock is ahead of the upstream's time, in seconds.
    public var clockOffset: Double { (-upstream.identity.clockOffset).inSeconds }

    /// Whether the copy has been complete, so that it can serve without the upstream.
    public var isComplete: Bool { applier.isComplete }
    /// The seconds since the copy was last known to be up to date; `nil` if it has not been in this run.
    public var lag: Double? { applier.lag }
    /// The number of events that wait for the upstream.
    public var waitingEvents: Int { max(0, outbox.waiting.entries) }

    public func metrics() -> StoreMetrics {
        var metrics = base.metrics()
        metrics.own += [
            StoreMetric(
                "holdfast_edge_upstream_up", .gauge, "1 if the upstream responds.",
                isUpstreamUp ? 1 : 0),
            StoreMetric(
                "holdfast_edge_copy_complete", .gauge, "1 if the copy has been complete, so that it can serve alone.",
                isComplete ? 1 : 0),
            StoreMetric(
                "holdfast_edge_outbox_events", .gauge, "Events that wait on disk for the upstream.",
                UInt64(waitingEvents)),
            StoreMetric("holdfast_edge_outbox_bytes", .gauge, "Their size.", UInt64(max(0, outbox.waiting.bytes))),
            StoreMetric(
                "holdfast_edge_sent_events_total", .counter, "Events that the upstream has acknowledged.",
                sender.sent.value),
            StoreMetric(
                "holdfast_edge_refused_events_total", .counter, "Events that the upstream refused for good; dropped.",
                sender.refused.value),
            StoreMetric(
                "holdfast_edge_erased_events_total", .counter,
                "Events that the upstream has dropped, because their users were erased after they were accepted.",
                sender.erased.value),
            StoreMetric(
                "holdfast_edge_unassigned_exposures_total", .counter,
                "Exposures without a variation of users who have none at the upstream either; dropped.",
                sender.unassigned.value),
            StoreMetric(
                "holdfast_edge_clock_offset_seconds", .gauge,
                "How far this host's clock is ahead of the upstream's time; times are corrected by it.",
                seconds: clockOffset),
            StoreMetric(
                "holdfast_edge_changes_total", .counter, "First enrollments and saves that the upstream has decided.",
                enroller.decided.value),
            StoreMetric(
                "holdfast_edge_offline_changes_total", .counter,
                "First enrollments and saves that were not passed on, because the upstream was away.",
                enroller.offline.value),
            StoreMetric(
                "holdfast_edge_lookups_total", .counter, "Users that the upstream was asked for.",
                lookups.asked.value),
            StoreMetric(
                "holdfast_edge_forwarded_requests_total", .counter, "Requests that the upstream has answered.",
                pool.forwarded),
        ]
        if let lag {
            metrics.own.append(
                StoreMetric(
                    "holdfast_edge_lag_seconds", .gauge,
                    "How long ago the copy was known to have everything that the upstream has.", seconds: lag))
        }
        if let seconds = upstream.secondsSinceContact {
            metrics.own.append(
                StoreMetric(
                    "holdfast_edge_last_contact_seconds", .gauge, "How long ago the upstream has responded.",
                    seconds: seconds))
        }
        return metrics
    }
}
