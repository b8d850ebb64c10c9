import Bucketing
import Definitions
import HTTPServer
import HoldfastCore
import JSON
import Storage

/// `POST /edge/v1/events`: stores exposures, goal events and uses of flags of an edge's clients. An edge keeps them in
/// an outbox until this server has accepted or refused them.
struct EdgeEventsEndpoint {
    let services: Services
    let store: any StoreSession
    let feed: FeedEndpoint

    /// Stores all valid events or none. Events that are sent again are not counted twice.
    ///
    /// The response has the numbers of the outbox entries that this server has taken, and of the entries that it
    /// refuses for good; the edge must keep all others. An event that an edge accepted before its user was erased is
    /// taken, but dropped, and counted as `erased`. An event that an edge accepted before its user logged in counts for
    /// the account.
    ///
    /// - Throws: 410 if the edge follows another generation; nothing is stored then.
    func post(_ body: [UInt8], _ call: Call) async throws -> Response {
        let object = try JSONInput.parse(body).object("a request", knowing: ["after", "generation", "events", "uses"])
        try await feed.presence?.checkGeneration(of: object, call)
        let elements = try object.elements("events", limit: EdgeProtocol.maximumElements)
        let uses = object["uses"] == nil ? [] : try object.elements("uses", limit: EdgeProtocol.maximumElements)
        var batch = EdgeEventBatch(projects: services.projects.snapshot().projects, now: services.store.clock.now())
        for (index, element) in elements.enumerated() {
            try batch.addEvent(element, at: JSONPointer().appending("events").appending(index))
        }
        for (index, element) in uses.enumerated() {
            try batch.addUse(element, at: JSONPointer().appending("uses").appending(index))
        }
        if let text = try object.optionalText("after") {
            do {
                try await feed.presence?.check(cursor: try await feed.cursor(of: text), feed.reader, call)
            } catch let failure as FeedReader.Failure {
                throw FeedEndpoint.problem(failure)
            }
        }
        batch.apply(try await store.read(.removedUsers(batch.users)))
        try await resolve(&batch)
        let outcomes = try await services.reporter.record(batch.events)
        services.events.noteErased(batch.erased)
        if !batch.uses.isEmpty { try await store.write(.note(batch.uses)) }
        return .json(batch.response(outcomes))
    }

    /// Adds the user's current variation to exposures without one. Another edge may have assigned it.
    private func resolve(_ batch: inout EdgeEventBatch) async throws(StorageError) {
        let unresolved = batch.unresolved
        let profiles = await settled(each: unresolved.map(\.exposure.userID)) { store.profile(of: $0, $1) }
        for (element, profile) in zip(unresolved, profiles) {
            do throws(StorageError) {
                batch.resolve(element, with: try profile.get())
            } catch .damaged(let reason) {
                batch.refuse(element.entry, reason)
            }
        }
    }
}
