import Definitions
import HTTPServer
import HoldfastCore
import JSON
import Storage
import Synchronization

/// Collects the events of one batch in another product's protocol, and stores them.
///
/// Invalid events are dropped and the others are stored, as the contracts of these protocols require: the libraries
/// drop a refused batch as a whole, or send it again forever. ``requireAll()`` is for callers who ask for all or
/// nothing.
struct ReportedEvents {
    private var events: [UserEvent] = []
    /// The first faults of refused events and of ignored amounts, which a response lists.
    private var listedFaults: [CoreError] = []
    private var refused = 0
    private var ignoredAmounts = 0

    /// The maximum number of faults that a response lists.
    private static let faultLimit = 100

    /// The maximum number of events in a transaction. A request may have thousands, and other writes must not wait for
    /// all of them.
    private static let transactionSize = 500

    /// Adds an event, or the reason for which it is invalid.
    ///
    /// - Throws: a ``DefinitionError`` if the event may name a definition that another server has just stored.
    mutating func add(_ result: Result<UserEvent, CoreError>, _ call: Call) throws {
        switch result {
        case .success(let event): events.append(event)
        case .failure(let error):
            if error.mayBeStale { try call.requireUpToDate() }
            refused += 1
            list(error)
        }
    }

    /// Adds the faults of amounts that are ignored. Their events are stored without an amount.
    mutating func ignore(_ amounts: [CoreError]) {
        ignoredAmounts += amounts.count
        for error in amounts { list(error) }
    }

    /// Adds a fault to those that a response lists, if there is room.
    private mutating func list(_ error: CoreError) {
        if listedFaults.count < Self.faultLimit { listedFaults.append(error) }
    }

    /// Checks that no event was refused and no amount ignored.
    ///
    /// - Throws: 400 with the faults.
    func requireAll() throws(CoreError) {
        guard let first = listedFaults.first else { return }
        var error = CoreError(.invalid, "\(first.detail); nothing was stored", at: first.pointer)
        error.faults = listedFaults.map { JSONFault(pointer: $0.pointer ?? [], reason: $0.detail) }
        throw error
    }

    /// Stores the events, and counts the refused ones. If the store fails, the events of earlier transactions stay
    /// stored. If the sender then repeats the request, they are not counted twice.
    ///
    /// - Returns: the header fields with the numbers of refused events and ignored amounts; none for a number of 0.
    func record(_ services: Services) async throws -> [(name: StaticString, value: String)] {
        services.refusedEvents.add(UInt64(refused), ordering: .relaxed)
        services.ignoredAmounts.add(UInt64(ignoredAmounts), ordering: .relaxed)
        var rest = events[...]
        while !rest.isEmpty {
            _ = try await services.reporter.record(Array(rest.prefix(Self.transactionSize)))
            rest = rest.dropFirst(Self.transactionSize)
        }
        let counts: [(name: StaticString, count: Int)] = [
            ("X-Refused-Events", refused), ("X-Ignored-Amounts", ignoredAmounts),
        ]
        return counts.filter { $0.count > 0 }.map { ($0.name, "\($0.count)") }
    }
}
