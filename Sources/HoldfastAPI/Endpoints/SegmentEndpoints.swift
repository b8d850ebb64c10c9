import Bucketing
import HTTPServer
import JSON
import Storage

/// `/v1/segments`: users who meet conditions on their stored attributes. An experiment names a segment as its audience
/// with `{"segment":"…"}`.
struct SegmentEndpoints {
    let services: Services
    let projects: ProjectView

    /// Segments that may be defined.
    private static let limit = 1_000

    func list(_ request: borrowing Request, _ call: Call) {
        let segments = projects.schema.segments.values.sorted { $0.name < $1.name }
        JSONList("segments", segments) { $1.value(.object($0.json)) }.answer(call)
    }

    /// The definition; `?size=true` counts the users, which looks at every user who has attributes.
    func get(_ request: borrowing Request, _ call: Call) {
        do throws(Problem) {
            let segment = try segment(request)
            guard try Request.flag("size", try request.query(knowing: ["size"])) else {
                return call.answer(json: JSONValue.object(segment.json).encoded())
            }
            let services = services
            services.attributes.scan(SegmentMatcher(segment, schema: projects.schema), .size) { result in
                switch result {
                case .success(let page):
                    services.attributeFigures.countScan(of: page.examined)
                    var answer = segment.json
                    answer["size"] = .integer(Int64(page.matches))
                    answer["examined"] = .integer(Int64(page.examined))
                    call.answer(json: JSONValue.object(answer).encoded())
                case .failure(let error):
                    call.fail(error)
                }
            }
        } catch {
            call.fail(error)
        }
    }

    /// Defines a segment, or gives it other conditions; 201 if it is new.
    func put(_ request: borrowing Request, _ call: Call) {
        do throws(Problem) {
            let name = try request.definedName()
            let content = request.withBody { Array($0) }
            let author = call.author(request)
            services.projects.inBackground { [services] in Self.put(name, content, author, services, call) }
        } catch {
            call.fail(error)
        }
    }

    private static func put(
        _ name: Identifier, _ content: [UInt8], _ author: Author, _ services: Services, _ call: Call
    ) {
        do throws(Problem) {
            let catalog = services.projects
            let schema = catalog.snapshot().schema
            let segment = try segment(name, ProfileBody.parse(content), schema)
            guard schema.segments.count < limit || schema.segments[name] != nil else {
                throw Problem(.conflict, "at most \(limit) segments may be defined")
            }
            services.attributes.putSegment(segment, by: author) { result in
                switch result {
                case .success(let isNew): catalog.answer(call, isNew ? .created : .ok, .object(segment.json))
                case .failure(let error): call.fail(error)
                }
            }
        } catch {
            call.fail(error)
        }
    }

    /// `{"conditions":[…]}`
    private static func segment(
        _ name: Identifier, _ body: JSONValue, _ schema: AttributeSchema
    ) throws(Problem) -> Segment {
        let object = try body.object("a segment", knowing: ["name", "conditions"])
        if let given = try object.optionalText("name"), !given.utf8.elementsEqual(name.string.utf8) {
            throw Problem(.badRequest, "`name` must be the name in the path, '\(name)'; got '\(given)'", at: ["name"])
        }
        guard let conditions = object["conditions"] else {
            throw Problem(.badRequest, "`conditions` is required", at: ["conditions"])
        }
        let faults = SegmentRules.faults(in: conditions, at: ["conditions"], schema: schema)
        if let problem = Problem(faults: faults, "nothing was stored") { throw problem }
        return Segment(name: name, conditions: conditions)
    }

    func delete(_ request: borrowing Request, _ call: Call) {
        do throws(Problem) {
            let name = try request.definedName()
            let author = call.author(request)
            services.projects.inBackground { [services] in Self.delete(name, author, services, call) }
        } catch {
            call.fail(error)
        }
    }

    private static func delete(_ name: Identifier, _ author: Author, _ services: Services, _ call: Call) {
        do throws(Problem) {
            let catalog = services.projects
            for project in catalog.snapshot().projects.values {
                let users = project.datafile.keys(usingSegment: name)
                guard users.isEmpty else {
                    let list = users.map { "'\($0)'" }.joined(separator: ", ")
                    throw Problem(
                        .conflict, "the segment '\(name)' is an audience in the project '\(project.sdkKey)'; change it first in \(list)")
                }
            }
            services.attributes.removeSegment(name, by: author) { result in
                switch result {
                case .success(true): catalog.answer(call, .noContent, nil)
                case .success(false): call.fail(unknown(name))
                case .failure(let error): call.fail(error)
                }
            }
        } catch {
            call.fail(error)
        }
    }

    /// The users in the order of their ids' bytes, one a line. `?after=USER_ID` resumes behind a user, `?limit=N` ends
    /// after N.
    func users(_ request: borrowing Request, _ call: Call) {
        do throws(Problem) {
            let segment = try segment(request)
            let query = try request.query(knowing: ["after", "limit"])
            var after: Identifier?
            if let text = query["after"] { after = try ProfileBody.checkUserID(text, at: nil) }
            let stream = SegmentUsers(
                services: services, matcher: SegmentMatcher(segment, schema: projects.schema), after: after,
                limit: try Request.limit(query))
            call.answer(MediaType.lines, stream: stream)
        } catch {
            call.fail(error)
        }
    }

    private func segment(_ request: borrowing Request) throws(Problem) -> Segment {
        let name = try request.definedName()
        guard let segment = projects.schema.segments[name] else { throw Self.unknown(name) }
        return segment
    }

    private static func unknown(_ name: Identifier) -> Problem {
        Problem(.notFound, "no segment has the name '\(name)'")
    }
}
