import Definitions
import HTTPServer
import HoldfastCore
import JSON
import Storage
import Synchronization

/// The events of a batch in another product's protocol. As their contracts require, invalid events are dropped and the
/// others are stored: libraries drop a refused batch as a whole, or send it again forever.
struct ReportedEvents {
    private var events: [UserEvent] = []
    private var refusals: [CoreError] = []
    private var refused = 0
    private var ignoredAmounts = 0

    /// The number of refused events that a response lists.
    private static let refusalLimit = 100

    /// The maximum number of events in a transaction. A request may have thousands, and other writes must not wait for
    /// all of them.
    private static let transaction = 500

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

    /// Adds what is wrong with the amounts of events that count without.
    mutating func ignore(_ amounts: [CoreError]) {
        ignoredAmounts += amounts.count
        for error in amounts { list(error) }
    }

    private mutating func list(_ error: CoreError) {
        if refusals.count < Self.refusalLimit { refusals.append(error) }
    }

    /// For callers who want all or nothing.
    ///
    /// - Throws: 400 with the faults of the events.
    func requireAll() throws(CoreError) {
        guard let first = refusals.first else { return }
        var error = CoreError(.invalid, "\(first.detail); nothing was stored", at: first.pointer)
        error.faults = refusals.map { JSONFault(pointer: $0.pointer ?? [], reason: $0.detail) }
        throw error
    }

    /// Stores the events. If the store fails, events of earlier transactions stay stored. A repeated request does not
    /// count them twice.
    ///
    /// - Returns: the fields that tell how many were left out and how many amounts were ignored, if any were.
    func record(_ services: Services) async throws -> [(name: StaticString, value: String)] {
        services.refusedEvents.add(UInt64(refused), ordering: .relaxed)
        services.ignoredAmounts.add(UInt64(ignoredAmounts), ordering: .relaxed)
        var rest = events[...]
        while !rest.isEmpty {
            _ = try await services.reporter.record(Array(rest.prefix(Self.transaction)))
            rest = rest.dropFirst(Self.transaction)
        }
        let counts: [(name: StaticString, count: Int)] = [
            ("X-Refused-Events", refused), ("X-Ignored-Amounts", ignoredAmounts),
        ]
        return counts.filter { $0.count > 0 }.map { ($0.name, "\($0.count)") }
    }
}
