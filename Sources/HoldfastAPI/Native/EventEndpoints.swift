import Bucketing
import HTTPServer
import HoldfastCore
import JSON
import Storage

/// `/v1/exposures` and `/v1/events`: takes exposures and goal events, and exports them, for example to a warehouse.
struct EventEndpoints {
    let services: Services
    let store: any ProfileStore & EventStore
    let projects: ProjectView

    /// Takes one goal event or an array of them, and responds when they are durable. In an array, a refused event does
    /// not affect the others.
    func postEvents(_ request: borrowing Request, _ call: Call) throws(CoreError) {
        try take(request, call, knowing: GoalEvent.members) { body, items, index, _ throws(EventRefusal) in
            do throws(CoreError) {
                let event = try GoalEvent(body)
                if let sdkKey = try body.sdkKey() { _ = try projects.project(named: sdkKey) }
                items.set(EventItem(id: event.senderID, event: .success(.goal(event))), at: index)
            } catch {
                throw EventRefusal(error, isRetriable: error.kind == .notFound)
            }
        }
    }

    /// Takes one exposure or an array of them, as ``postEvents(_:_:)`` does.
    func postExposures(_ request: borrowing Request, _ call: Call) throws(CoreError) {
        try take(request, call, knowing: ExposureInput.members) { body, items, index, call throws(EventRefusal) in
            let exposure = try ExposureInput(body, projects)
            if exposure.project.forcesVariations(on: exposure.userID) {
                // Another process may have removed the forced variation, or erased the user.
                do throws(CoreError) { try call.requireUpToDate() } catch { throw EventRefusal(error) }
            }
            guard exposure.needsProfile else {
                return items.set(EventItem(event: .success(.exposure(try exposure.exposure(nil)))), at: index)
            }
            store.profile(of: exposure.userID) { result in
                items.set(EventItem(event: Self.event(exposure, result)), at: index)
            }
        }
    }

    private static func event(
        _ body: ExposureInput, _ result: Result<ProfileRecord?, StorageError>
    ) -> Result<UserEvent, EventRefusal> {
        result.mapError { EventRefusal(CoreError($0), isRetriable: true) }.flatMap { profile in
            do throws(EventRefusal) {
                return .success(.exposure(try body.exposure(profile)))
            } catch {
                return .failure(error)
            }
        }
    }

    private func take(
        _ request: borrowing Request, _ call: Call, knowing members: [String],
        _ parse: @escaping Parse
    ) throws(CoreError) {
        let list = try ReportList(request, limit: services.options.elementLimit)
        let (sdkKey, now) = (request.sdkKey, services.store.clock.now())
        let recording = EventRecording(reporter: services.reporter, call: call, list: list)
        let items = Join(list.elements.count, completion: recording.record)
        call.forEach(list.elements.indices) { index in
            do throws(CoreError) {
                let input = try EventInput(
                    list.elements[index], knowing: members, at: list.place(of: index), sdkKey: sdkKey, now: now)
                take(input, items, index, call, parse)
            } catch {
                items.set(EventItem(event: .failure(EventRefusal(error))), at: index)
            }
        }
    }

    /// Sets an item, at once or later, unless the event is refused.
    private typealias Parse = (EventInput, Join<EventItem>, Int, Call) throws(EventRefusal) -> Void

    private func take(
        _ input: EventInput, _ items: Join<EventItem>, _ index: Int, _ call: Call, _ parse: @escaping Parse
    ) {
        do throws(EventRefusal) {
            try parse(input, items, index, call)
        } catch {
            guard error.error.concernsDefinitions, !call.isUpToDate else {
                return items.set(EventItem(event: .failure(error)), at: index)
            }
            call.updating(projects) { result in
                switch result {
                case .success(let call): take(input, items, index, call, parse)
                case .failure(let error):
                    let refusal = EventRefusal(CoreError(error), isRetriable: true)
                    items.set(EventItem(event: .failure(refusal)), at: index)
                }
            }
        }
    }

    // MARK: Export

    /// Goal events in the order of their arrival. `?after=CURSOR` resumes after a line, `?limit=N` ends after N,
    /// `?format=json` returns a page.
    func exportEvents(_ request: borrowing Request, _ call: Call) throws(CoreError) {
        try export(request, call, "events") { [store] after, limit, completion in
            store.goalEvents(after: after, limit: limit) { result in
                completion(result.map { EventExport.Page($0, last: $0.last?.number, EventLine.append) })
            }
        }
    }

    /// Exposures in the order in which they were stored or last changed.
    func exportExposures(_ request: borrowing Request, _ call: Call) throws(CoreError) {
        try export(request, call, "exposures") { [store] after, limit, completion in
            store.exposures(after: after, limit: limit) { result in
                completion(result.map { EventExport.Page($0, last: $0.last?.number, EventLine.append) })
            }
        }
    }

    private func export(
        _ request: borrowing Request, _ call: Call, _ name: StaticString, from source: @escaping EventExport.Source
    ) throws(CoreError) {
        let query = try request.query(knowing: ["after", "limit", "format"])
        guard let after = Int64(query["after"] ?? "0"), after >= 0 else {
            throw CoreError(.invalid, "`after` must be the cursor of a line, a whole number of at least 0")
        }
        let form = try ExportForm(query, of: name)
        let stream = EventExport(
            form, after: after, pageSize: services.options.exportPage, from: source)
        call.respond(form.contentType, stream: stream)
    }
}

/// One element of the body after parsing: an event to record, or why it is refused.
struct EventItem: Sendable {
    var id: Identifier?
    let event: Result<UserEvent, EventRefusal>
}

/// Records the events of one request, and responds.
private struct EventRecording: Sendable {
    let reporter: EventReporter
    let call: Call
    let list: ReportList

    func record(_ items: [EventItem]) {
        if !list.isArray, case .failure(let refusal)? = items.first?.event { return call.fail(refusal.error) }
        reporter.record(items.compactMap { try? $0.event.get() }) { result in
            switch result {
            case .success(let outcomes):
                var outcomes = outcomes.makeIterator()
                let results = items.map { item -> (id: Identifier?, outcome: Result<ReportList.Status, EventRefusal>) in
                    (item.id, item.event.map { _ in outcomes.next() == .repeated ? .repeated : .stored })
                }
                list.respond(results, to: call)
            case .failure(let error): call.fail(error)
            }
        }
    }
}
