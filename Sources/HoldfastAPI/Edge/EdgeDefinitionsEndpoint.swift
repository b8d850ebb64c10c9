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

    /// The interval at which a waiting request checks whether this server has noticed newer definitions.
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
        let known = try KnownDefinitions(
            request.query(knowing: ["after", "datafiles_after", "elements_after", "generation", "wait"]))
        let state = try await newerState(than: known)
        if let epoch = known.epoch {
            // The store has gone back in time if it has made fewer changes than the edge has seen.
            let isAhead = state.map { $0.changes < known.changes } ?? false
            try await presence.check(epoch: epoch, isAhead: isAhead, call)
        }
        guard let state else { return Response(.notModified) }
        do throws(FeedReader.Failure) {
            // The end of the feed is read after the definitions, so that all enrollments by older definitions come
            // before it.
            let end = try await services.feed.end()
            return .json(Self.encode(state, feed: end, hasParts: known.elementsVersion != nil))
        } catch {
            throw FeedEndpoint.problem(error)
        }
    }

    /// Reads the definitions, and waits for newer ones if the edge has the newest.
    ///
    /// - Returns: `nil` if there are no newer definitions at the end of the wait.
    private func newerState(than known: KnownDefinitions) async throws -> ProjectState? {
        let deadline = ContinuousClock.now + .seconds(known.wait)
        let query = StoreQuery.projects(
            ifChangedSince: known.changes, datafilesAfter: known.datafileVersion,
            elementsAfter: known.elementsVersion ?? 0)
        var state = try await store.read(query)
        while state == nil, try await waitForChange(since: known.changes, until: deadline) {
            state = try await store.read(query)
        }
        return state
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

    /// Encodes the definitions.
    ///
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

/// The query of a request: the definitions that the edge has, and how long it waits for newer ones.
private struct KnownDefinitions {
    /// The `changes` of the edge's definitions; -1 if it has none.
    let changes: Int64
    /// The newest version of a datafile that the edge has.
    let datafileVersion: Int64
    /// The version since which the edge needs the changed parts of datafiles; `nil` if it needs whole datafiles.
    let elementsVersion: Int64?
    /// The epoch that the edge follows; `nil` if the query does not name it.
    let epoch: Int64?
    /// The maximum time for which the response waits, in seconds.
    let wait: Int

    init(_ query: [String: String]) throws(CoreError) {
        changes = try Int64(FeedEndpoint.number("after", query, in: -1...Int.max, default: -1))
        datafileVersion = try Int64(FeedEndpoint.number("datafiles_after", query, in: 0...Int.max, default: 0))
        let version = try Int64(FeedEndpoint.number("elements_after", query, in: 0...Int.max, default: 0))
        elementsVersion = query["elements_after"] == nil ? nil : version
        wait = try FeedEndpoint.number("wait", query, in: 0...FeedEndpoint.maximumWait, default: 0)
        epoch = try query["generation"].map { text throws(CoreError) in
            guard let epoch = Int64(text, radix: 16), epoch > 0 else {
                throw CoreError(.invalid, "`generation` must be the first part of a cursor; got '\(text)'")
            }
            return epoch
        }
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
