import Chronology
import Logging
import Storage
import StorageEdge
import StorageSQLite

// The events of stores as log lines. The stores do not depend on the log, and report events as values.

extension StoreClock.Event {
    func log(to logger: Logger) {
        switch self {
        case .stands(let back):
            logger.warning(
                "the database's clock was set back: times stand still until it has caught up",
                metadata: ["milliseconds": .stringConvertible(back.milliseconds)])
        case .follows(let back):
            logger.warning(
                "the database's clock was set back by more than a day: times follow it",
                metadata: ["milliseconds": .stringConvertible(back.milliseconds)])
        }
    }
}

extension EdgeEvent {
    func log(to logger: Logger) {
        switch self {
        case .upstreamIsAway(let reason): logger.warning("the upstream is away", metadata: ["reason": "\(reason)"])
        case .upstreamResponds: logger.notice("the upstream responds again")
        case .copyBegins(let reason): logger.notice("copying all users", metadata: ["reason": "\(reason)"])
        case .copyEnds(let users):
            logger.notice("all users are copied", metadata: ["users": .stringConvertible(users)])
        case .eventsRefused(let count, let reason):
            logger.error(
                "the upstream refuses events; they were dropped",
                metadata: ["events": .stringConvertible(count), "reason": "\(reason)"])
        case .exposuresUnassigned(let count, let reason):
            logger.warning(
                "exposures without a variation were dropped, because their users have no assignment; this is logged once an hour",
                metadata: ["exposures": .stringConvertible(count), "reason": "\(reason)"])
        case .clockIsFarOff(let seconds):
            logger.warning(
                "this host's clock differs from the upstream's time; times are corrected, but set the clock",
                metadata: ["seconds_ahead": .stringConvertible(seconds)])
        case .copyWasDamaged(let reason, let kept):
            logger.error(
                "the copy was damaged; all users are copied anew", metadata: ["reason": "\(reason)", "kept": "\(kept)"])
        case .copyFails(let reason): logger.error("the copy cannot be updated", metadata: ["reason": "\(reason)"])
        }
    }
}

extension StoreEvent {
    func log(to logger: Logger) {
        switch self {
        case .writesFail(let reason): logger.error("writes to the store fail", metadata: ["reason": "\(reason)"])
        case .writesSucceed: logger.notice("writes to the store succeed again")
        case .checkpointFails(let reason):
            logger.error("the write-ahead log cannot be copied into the database", metadata: ["reason": "\(reason)"])
        case .logRemains(let bytes):
            logger.notice(
                "the write-ahead log stays beside the database", metadata: ["bytes": .stringConvertible(bytes)])
        }
    }
}
