public import Bucketing
public import Chronology
import JSON

/// A period in which an experiment's traffic allocation stayed the same in one project.
///
/// Results compare the numbers of users of the variations with the allocation under which these users were assigned.
/// Otherwise a change of weights would be reported as a sample ratio mismatch.
public struct AllocationPeriod: Sendable, Equatable {
    /// The version of the datafile that began the period, or ``imported``.
    public var number: Int64
    public var sdkKey: String
    /// When the datafile that began the period was stored; for ``imported``, when the experiment began elsewhere.
    public var since: Instant
    public var allocation: TrafficAllocation

    public init(number: Int64, sdkKey: String, since: Instant, allocation: TrafficAllocation) {
        self.number = number
        self.sdkKey = sdkKey
        self.since = since
        self.allocation = allocation
    }

    /// Creates a period with a stored allocation. A damaged allocation reads as empty, so that no counts are compared
    /// with it.
    public init(number: Int64, sdkKey: String, since: Instant, stored allocation: String) {
        let json = try? JSONParser().parse(allocation)
        self.init(
            number: number, sdkKey: sdkKey, since: since,
            allocation: json.flatMap { try? TrafficAllocation(json: $0) } ?? TrafficAllocation(ranges: []))
    }

    /// The allocation as JSON text, for stores.
    public var storedAllocation: String { String(decoding: allocation.json.encoded(), as: UTF8.self) }

    /// The number under which exposures without a known allocation are tallied.
    public static let unknown: Int64 = 0
    /// The number of the period of exposures imported from another system. An experiment has at most one such period;
    /// no datafile of this server began it.
    public static let imported: Int64 = -1
}

/// A period in the history of an experiment that began with a datafile of a project: an ``AllocationPeriod`` or a
/// ``StatusPeriod``.
protocol HistoryPeriod {
    /// The version of the datafile.
    var number: Int64 { get }
    /// When the datafile was stored.
    var since: Instant { get }
}

extension HistoryPeriod {
    /// The chronological order. If two periods have the same time, the period of the older datafile comes first.
    static func isBefore(_ left: Self, _ right: Self) -> Bool {
        (left.since, left.number) < (right.since, right.number)
    }
}

extension Sequence where Element: HistoryPeriod {
    /// Returns the last period that had begun at a time; `nil` if no period had begun.
    func current(at time: Instant) -> Element? { filter { $0.since <= time }.max(by: Element.isBefore) }

    /// The first period; `nil` if there is none.
    var earliest: Element? { self.min(by: Element.isBefore) }
}

extension AllocationPeriod: HistoryPeriod {}
extension StatusPeriod: HistoryPeriod {}
