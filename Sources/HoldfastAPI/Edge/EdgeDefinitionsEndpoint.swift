import Bucketing
import Chronology
import Definitions
import HTTPServer
import HoldfastCore
import JSON
import Storage

/// `GET /edge/v1/definitions`: projects, datafiles, attributes, segments and forced variations, with the numbers that
/// this store has given them. An edge copies them, and waits in this request for newer ones.
struct EdgeDefinitionsEndpoint {
    let services: Services
    let store: any StoreSession
    let presence: EdgePresence

    private static let pollInterval = Duration.milliseconds(50)

    /// Responds with the definitions, or with 304 if the edge's are the newest. The query has:
    ///
    /// - `after=CHANGES`: the `changes` of the definitions that the edge has.
    /// - `wait=SECONDS`: how long the response waits for newer definitions before it is 304.
    /// - `datafiles_after=VERSION`: older datafiles are left out.
    /// - `elements_after=VERSION`: datafiles are sent as they are stored. A large datafile is stored in parts; if the
    ///   store knows which parts have changed since this version, only these are sent, and otherwise all.
    /// - `generation=EPOCH`: the epoch of the feed that the edge follows.
    ///
    /// - Throws: 410 if this store has another epoch.
    func get(_ request: borrowing Request, _ call: Call) async throws -> Response {
        let query = try request.query(knowing: ["after", "datafiles_after", "elements_after", "generation", "wait"])
        let changes = try Int64(FeedEndpoint.number("after", query, in: -1...Int.max, otherwise: -1))
        let version = try Int64(FeedEndpoint.number("datafiles_after", query, in: 0...Int.max, otherwise: 0))
        let elementsVersion = try Int64(FeedEndpoint.number("elements_after", query, in: 0...Int.max, otherwise: 0))
        let seconds = try FeedEndpoint.number("wait", query, in: 0...FeedEndpoint.mostSeconds, otherwise: 0)
        let deadline = ContinuousClock.now + .seconds(seconds)
        let newer = StoreQuery.projects(
            ifChangedSince: changes, datafilesAfter: version, elementsAfter: elementsVersion)
        var state = try await store.read(newer)
        while state == nil, try await waitForChange(since: changes, until: deadline) {
            state = try await store.read(newer)
        }
        if let text = query["generation"] {
            guard let epoch = Int64(text, radix: 16), epoch > 0 else {
                throw CoreError(.invalid, "`generation` must be the first part of a cursor; got '\(text)'")
            }
            try await presence.expect(epoch, isAhead: state.map { $0.changes < changes } ?? false, call)
        }
        guard let state else { return Response(.notModified) }
        do throws(FeedReader.Failure) {
            // The end of the feed is read after the definitions, so that all enrollments by older definitions come
            // before it.
            let hasParts = query["elements_after"] != nil
            return .json(Self.encode(state, feed: try await services.feed.end(), hasParts: hasParts))
        } catch {
            throw FeedEndpoint.problem(error)
        }
    }

    /// Waits until this server notices newer definitions than the edge has.
    ///
    /// - Returns: `false` after the deadline, or if the server shuts down.
    private func waitForChange(since changes: Int64, until deadline: ContinuousClock.Instant) async throws -> Bool {
        while !services.changes.isClosed, ContinuousClock.now < deadline {
            if services.projects.snapshot().changes != changes { return true }
            try await Task.sleep(for: Self.pollInterval)
        }
        return false
    }

    /// - Parameter hasParts: whether datafiles are written as they are stored, whole or in parts. Otherwise each is
    ///   written as a whole.
    private static func encode(_ state: ProjectState, feed: FeedCursor, hasParts: Bool) -> [UInt8] {
        var writer = JSONWriter(capacity: 1_024)
        writer.beginObject()
        writer.member("changes", state.changes)
        writer.member("newest_datafile", state.newestDatafile)
        writer.member("feed", feed.text)
        writer.list("projects", state.projects) { project, writer in
            writer.member("sdk_key", project.sdkKey)
            writer.member("name", project.name)
            writer.member("created_at", project.createdAt.milliseconds)
            writer.member("is_default", project.isDefault)
        }
        writer.list("datafiles", state.datafiles) { datafile, writer in
            writer.member("version", datafile.version)
            writer.member("sdk_key", datafile.sdkKey)
            writer.member("revision", datafile.revision)
            append(hasParts ? datafile.body : .whole(datafile.content), to: &writer)
            writer.member("stored_at", datafile.storedAt.milliseconds)
            writer.member("author", datafile.author)
        }
        writer.list("attributes", state.schema.attributes) { attribute, writer in
            writer.member("number", attribute.number)
            writer.member("name", attribute.name.string)
            writer.member("definition", attribute.storedDocument)
        }
        writer.list("segments", state.schema.segments.values.sorted { $0.name < $1.name }) { segment, writer in
            writer.member("name", segment.name.string)
            writer.member("conditions", segment.storedConditions)
        }
        writer.list("forced_variations", state.forcedVariations) { forced, writer in
            writer.member("sdk_key", forced.sdkKey)
            writer.member("user_id", forced.userID.string)
            writer.member("experiment_key", forced.experimentKey.string)
            writer.member("variation_key", forced.variationKey.string)
        }
        writer.endObject()
        return writer.finish()
    }

    /// Writes a datafile that is stored as a whole, in parts, or as the parts that have changed since a version.
    private static func append(_ body: StoredDatafile.Body, to writer: inout JSONWriter) {
        switch body {
        case .whole(let content): writer.member("content", base64URL: content)
        case .parts(let parts): append(base: parts.base, parts.elements, to: &writer)
        case .change(let change):
            append(base: change.base, change.put, to: &writer)
            writer.list("removed", change.removed) { append($0, to: &$1) }
        }
    }

    private static func append(base: [UInt8], _ elements: [DatafileParts.Element], to writer: inout JSONWriter) {
        writer.member("base", base64URL: base)
        writer.list("elements", elements) { element, writer in
            append(element.name, to: &writer)
            writer.member("position", element.position)
            writer.member("body", base64URL: element.body)
        }
    }

    private static func append(_ name: DatafileParts.Name, to writer: inout JSONWriter) {
        writer.member("list", name.list.string)
        writer.member("key", name.key.string)
    }
}

extension JSONWriter {
    /// Writes a member whose value is an array of objects.
    fileprivate mutating func list<Element>(
        _ name: StaticString, _ elements: [Element], _ append: (Element, inout JSONWriter) -> Void
    ) {
        key(name)
        beginArray()
        for element in elements {
            beginObject()
            append(element, &self)
            endObject()
        }
        endArray()
    }
}
