import Bucketing
import HTTPServer
import HoldfastCore
import JSON
import Storage

/// `POST /edge/v1/events`: what an edge's clients were exposed to and reached, and which flags they used.
struct EdgeEventsEndpoint {
    let services: Services
    let store: any StoreSession
    let feed: FeedEndpoint

    /// How many lines about erasures and merges are read behind `after`; an edge that lags more reads them itself.
    private static let mostLines = 10_000

    /// Stores the events that it can use, all or none of them; sent again, they are not counted twice. The response names
    /// the entries of the edge's outbox: those that are taken, and those that are refused for good. Nothing else says that
    /// an entry may leave the outbox. 409 if a user was erased or merged into another behind `after`, so that the edge does
    /// not know, and 410 if the edge follows another generation; nothing is stored then.
    func post(_ body: [UInt8], _ call: Call) async throws -> Response {
        let object = try JSONInput.parse(body).object("a request", knowing: ["after", "generation", "events", "uses"])
        try await feed.presence?.expect(object, call)
        let elements = try object.elements("events", limit: EdgeProtocol.mostElements)
        let uses = object["uses"] == nil ? [] : try object.elements("uses", limit: EdgeProtocol.mostElements)
        var batch = EdgeEventBatch(projects: services.projects.snapshot().projects, now: services.store.clock.now())
        for (index, element) in elements.enumerated() {
            try batch.addEvent(element, at: JSONPointer().appending("events").appending(index))
        }
        for (index, element) in uses.enumerated() {
            try batch.addUse(element, at: JSONPointer().appending("uses").appending(index))
        }
        if let text = try object.optionalText("after") { try await expectNoRemoval(of: batch.users, after: text) }
        try await resolve(&batch)
        let outcomes = try await services.reporter.record(batch.events)
        if !batch.uses.isEmpty { try await store.write(.note(batch.uses)) }
        return .json(batch.response(outcomes))
    }

    /// Gives exposures that name no variation the one that their users have by now: perhaps another edge has assigned it.
    private func resolve(_ batch: inout EdgeEventBatch) async throws(StorageError) {
        let open = batch.unresolved
        let profiles = await settled(each: open.map(\.exposure.userID)) { store.profile(of: $0, $1) }
        for (element, profile) in zip(open, profiles) {
            do throws(StorageError) {
                batch.resolve(element, try profile.get())
            } catch .damaged(let reason) {
                batch.refuse(element.entry, reason)
            }
        }
    }

    private func expectNoRemoval(of users: Set<Identifier>, after text: String) async throws {
        do {
            let cursor = try await feed.begin(text)
            let end = try await feed.reader.end()
            let batch = try await feed.reader.read(
                after: cursor, upTo: end, kinds: [.erasure, .merge], limit: Self.mostLines)
            var removed: [Identifier] = []
            for line in batch.lines {
                let userID = if case .merge(let other) = line.entry.change { other } else { line.entry.userID }
                if users.contains(userID), !removed.contains(userID) { removed.append(userID) }
            }
            guard !removed.isEmpty || !batch.isUpTo(end) else { return }
            var problem = Problem(
                .conflict,
                "the feed must be followed before events are sent: users of these events were erased or merged; nothing was stored"
            )
            problem.members = [("users", .array(removed.map { .string($0.string) }))]
            throw problem
        } catch let failure as FeedReader.Failure {
            throw FeedEndpoint.problem(failure)
        }
    }
}
