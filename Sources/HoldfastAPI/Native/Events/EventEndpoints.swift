import Bucketing
import Definitions
import HTTPServer
import HoldfastCore
import JSON
import Storage

/// `/v1/exposures` and `/v1/events`: records exposures and goal events, and exports them, for example to a warehouse.
struct EventEndpoints {
    let services: Services
    let store: any StoreSession
    let projects: ProjectView

    /// Records one goal event or an array of them, and responds when they are durable. In an array, a refused event
    /// does not affect the others.
    func postEvents(_ request: borrowing Request, _ call: Call) async throws -> Response {
        try await record(request, call, knowing: GoalEvent.members) { body, call in
            do throws(CoreError) {
                let event = try GoalEvent(body)
                if let sdkKey = try body.sdkKey() { _ = try projects.project(named: sdkKey, for: call.access) }
                return .goal(event)
            } catch {
                throw EventRefusal(error, isRetriable: error.kind == .notFound)
            }
        }
    }

    /// Records one exposure or an array of them, like ``postEvents(_:_:)``.
    func postExposures(_ request: borrowing Request, _ call: Call) async throws -> Response {
        try await record(request, call, knowing: ExposureInput.members) { body, call in
            let exposure = try ExposureInput(body, projects, for: call.access)
            if exposure.project.forcesVariations(on: exposure.userID) {
                // An exposure to a forced variation is left out of results. Another process may have ended the forced
                // variation, or erased the user.
                try call.requireUpToDate()
            }
            guard exposure.needsProfile else { return .exposure(try exposure.exposure(nil)) }
            let profile = try await completed { store.profile(of: exposure.userID, $0) }
            return .exposure(try exposure.exposure(profile, isOpen: services.store.isCopy))
        }
    }

    /// Records the events of a body, one or an array.
    ///
    /// - Parameters:
    ///   - members: the names of the members that an event may have.
    ///   - parse: returns the event to record; throws if the event is refused.
    private func record(
        _ request: borrowing Request, _ call: Call, knowing members: [String],
        _ parse: @escaping (EventInput, Call) async throws -> UserEvent
    ) async throws -> Response {
        let list = try ReportList(request, limit: services.options.elementLimit)
        let sdkKey = request.sdkKey
        let now = services.store.clock.now()
        let events = try await list.map(call, projects) { element, place, call in
            try await parse(EventInput(element, knowing: members, at: place, sdkKey: sdkKey, now: now), call)
        }
        let outcomes = try await services.reporter.record(events.compactMap { try? $0.get() })
        // There is an outcome for each event that was parsed.
        var remaining = outcomes.makeIterator()
        return try list.response(
            events.map { result in
                switch result {
                case .success(let event):
                    (event.senderID, .success(remaining.next() == .repeated ? .repeated : .stored))
                case .failure(let error): (nil, .failure(EventRefusal(of: error)))
                }
            })
    }

    // MARK: Export

    /// Exports goal events in the order of their arrival. `?after=CURSOR` resumes after a line, `?limit=N` ends after N
    /// events, `?format=json` returns a page.
    func exportEvents(_ request: borrowing Request, _ call: Call) throws(CoreError) -> Response {
        try export(request, call, "events") { [store] after, limit throws(StorageError) in
            let events = try await store.read(.goalEvents(after: after, limit: limit))
            return EventExport.Page(events, last: events.last?.number, EventLine.append)
        }
    }

    /// Exports exposures in the order in which they were stored or last changed.
    func exportExposures(_ request: borrowing Request, _ call: Call) throws(CoreError) -> Response {
        try export(request, call, "exposures") { [store] after, limit throws(StorageError) in
            let exposures = try await store.read(.exposures(after: after, limit: limit))
            return EventExport.Page(exposures, last: exposures.last?.number, EventLine.append)
        }
    }

    /// Responds with an export.
    ///
    /// - Parameter source: reads a page of events.
    private func export(
        _ request: borrowing Request, _ call: Call, _ name: StaticString, from source: @escaping EventExport.Source
    ) throws(CoreError) -> Response {
        let query = try request.query(knowing: ["after", "limit", "format"])
        guard let after = Int64(query["after"] ?? "0"), after >= 0 else {
            throw CoreError(.invalid, "`after` must be the cursor of a line, a whole number of at least 0")
        }
        let form = try ExportForm(query, of: name)
        let stream = EventExport(form, after: after, pageSize: services.options.exportPage, from: source)
        return call.response(form.contentType, stream: stream)
    }
}

extension UserEvent {
    /// The `id` that the sender has given to the event.
    fileprivate var senderID: Identifier? {
        if case .goal(let event) = self { event.senderID } else { nil }
    }
}
