import Bucketing
import HTTPServer
import JSON
import Storage

/// `/v1/exposures` and `/v1/events`: what users saw and what came of it, in, and out again for a warehouse.
struct EventEndpoints {
    let services: Services
    let reader: any ProfileReader
    let projects: ProjectView

    /// One goal event or an array of them. Answered when they are durable; in an array each on its own.
    func postEvents(_ request: borrowing Request, _ call: Call) {
        take(request, call, knowing: GoalEvent.members) { body, answers, index in
            do throws(Problem) {
                let event = try GoalEvent(body)
                if let sdkKey = try body.sdkKey() { _ = try projects.project(named: sdkKey) }
                answers.add(.success(.goal(event)), id: event.senderID, at: index)
            } catch {
                answers.add(.failure(EventRefusal(error, isRetriable: error.status == .notFound)), at: index)
            }
        }
    }

    /// One exposure or an array of them.
    func postExposures(_ request: borrowing Request, _ call: Call) {
        take(request, call, knowing: ExposureBody.members) { body, answers, index in
            do throws(EventRefusal) {
                let exposure = try ExposureBody(body, projects)
                guard exposure.needsProfile else {
                    return answers.add(.success(.exposure(try exposure.exposure(nil))), at: index)
                }
                reader.profile(of: exposure.userID) { result in
                    answers.add(Self.event(exposure, result), at: index)
                }
            } catch {
                answers.add(.failure(error), at: index)
            }
        }
    }

    private static func event(
        _ body: ExposureBody, _ result: Result<ProfileRecord?, StorageError>
    ) -> Result<UserEvent, EventRefusal> {
        result.mapError { EventRefusal(Problem($0), isRetriable: true) }.flatMap { profile in
            do throws(EventRefusal) {
                return .success(.exposure(try body.exposure(profile)))
            } catch {
                return .failure(error)
            }
        }
    }

    private func take(
        _ request: borrowing Request, _ call: Call, knowing members: [String],
        _ parse: @escaping (EventBody, EventAnswers, Int) -> Void
    ) {
        do throws(Problem) {
            let value = try request.withBody { bytes throws(Problem) in try ProfileBody.parse(bytes) }
            let limit = services.options.elementLimit
            let list = value.array ?? [value]
            guard list.count <= limit else {
                throw Problem(.badRequest, "the array must have at most \(limit) elements; got \(list.count)", at: [])
            }
            let isArray = value.array != nil
            let now = systemWallClock()
            let answers = EventAnswers(count: list.count, isArray: isArray, services.events, call)
            call.forEach(list.indices) { index in
                do throws(Problem) {
                    let place = isArray ? JSONPointer().appending(index) : []
                    parse(try EventBody(list[index], knowing: members, at: place, now: now), answers, index)
                } catch {
                    answers.add(.failure(EventRefusal(error)), at: index)
                }
            }
        } catch {
            call.fail(error)
        }
    }

    // MARK: Export

    /// Goal events in the order of their arrival. `?after=CURSOR` resumes behind a line, `?limit=N` ends after N,
    /// `?format=json` answers a page.
    func exportEvents(_ request: borrowing Request, _ call: Call) {
        export(request, call, "events") { [store = services.eventStore] after, limit throws(StorageError) in
            let events = try store.goalEvents(after: after, limit: limit)
            var lines = JSONWriter()
            for event in events { EventLine.append(event, to: &lines) }
            return EventExport.Page(lines: lines.finish(), count: events.count, last: events.last?.number ?? 0)
        }
    }

    /// Exposures in the order in which they were stored or last changed.
    func exportExposures(_ request: borrowing Request, _ call: Call) {
        export(request, call, "exposures") { [store = services.eventStore] after, limit throws(StorageError) in
            let exposures = try store.exposures(after: after, limit: limit)
            var lines = JSONWriter()
            for exposure in exposures { EventLine.append(exposure, to: &lines) }
            return EventExport.Page(lines: lines.finish(), count: exposures.count, last: exposures.last?.number ?? 0)
        }
    }

    private func export(
        _ request: borrowing Request, _ call: Call, _ name: StaticString, from source: @escaping EventExport.Source
    ) {
        do throws(Problem) {
            let query = try request.query(knowing: ["after", "limit", "format"])
            guard let after = Int64(query["after"] ?? "0"), after >= 0 else {
                throw Problem(.badRequest, "after must be the cursor of a line, a whole number of at least 0")
            }
            let form = try ExportForm(query, of: name)
            let stream = EventExport(
                form, after: after, pageSize: services.options.exportPage, on: services.storeReads, from: source)
            call.answer(form.contentType, stream: stream)
        } catch {
            call.fail(error)
        }
    }
}
