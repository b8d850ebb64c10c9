import Bucketing
import Chronology
import HTTPServer
import HoldfastCore
import JSON
import Storage

/// `GET /v1/profiles/{user_id}/export`: everything that is stored about one user, as one document, for the
/// right of access of the GDPR.
///
/// Most records are read at once and form the head of the document. Goal events and audit entries may be many, so they
/// are read page by page while the document is sent.
struct PersonalExportEndpoint {
    let store: any StoreSession
    let projects: ProjectView
    /// The maximum number of elements that are read at once.
    let pageSize: Int

    /// Responds with the document; 404 if nothing is stored.
    func get(_ request: borrowing Request, _ call: Call) async throws -> Response {
        let userID = try request.userID()
        let records = try await store.read(.records(of: userID))
        let whitelisted = projects.whitelisted(userID)
        guard !ErasedRecords(records).isEmpty || !whitelisted.isEmpty else { throw ProfileEndpoints.unknown }
        let export = PersonalExport(head: try head(records, whitelisted), lists(records), pageSize: pageSize)
        return call.response(MediaType.json, stream: export)
    }

    /// Encodes the first members of the document, without the end of the object.
    ///
    /// - Parameter whitelisted: the variations that datafiles force on the user.
    private func head(
        _ records: UserRecords, _ whitelisted: [(sdkKey: String, experiment: Identifier, variation: Identifier)]
    ) throws(StorageError) -> [UInt8] {
        var writer = JSONWriter()
        writer.beginObject()
        writer.member("user_id", records.userID.string)
        writer.member("exported_at", systemWallClock().rfc3339)
        writer.key("profile")
        if let profile = try records.profile.get() {
            writer.raw(ProfileJSON.encode(records.userID, profile, detail: true))
        } else {
            writer.null()
        }
        writer.key("attributes")
        (try records.attributes.get() ?? .empty).append(to: &writer, projects.schema)
        writer.key("forced_variations")
        writer.beginArray()
        for forced in records.forcedVariations {
            Self.append(forced.sdkKey, forced.experimentKey, forced.variationKey, to: &writer)
        }
        writer.endArray()
        writer.key("whitelists")
        writer.beginArray()
        for (sdkKey, experiment, variation) in whitelisted {
            Self.append(sdkKey, experiment, variation, to: &writer)
        }
        writer.endArray()
        Self.appendStickyDocuments(of: records, to: &writer)
        writer.key("exposures")
        writer.beginArray()
        for exposure in records.exposures.sorted(by: { $0.number < $1.number }) {
            EventLine.append(exposure, to: &writer)
        }
        writer.endArray()
        return writer.finish()
    }

    private static func appendStickyDocuments(of records: UserRecords, to writer: inout JSONWriter) {
        writer.key("sticky_documents")
        writer.beginArray()
        for document in records.stickyDocuments {
            writer.beginObject()
            writer.member("attributeName", document.attributeName)
            writer.member("attributeValue", records.userID.string)
            writer.key("assignments")
            writer.raw(Array(document.content.utf8))
            writer.endObject()
        }
        writer.endArray()
    }

    /// Writes a variation that a project's definitions force on the user.
    private static func append(
        _ sdkKey: String, _ experimentKey: Identifier, _ variationKey: Identifier, to writer: inout JSONWriter
    ) {
        writer.beginObject()
        writer.member("sdk_key", sdkKey)
        writer.member("experiment_key", experimentKey.string)
        writer.member("variation_key", variationKey.string)
        writer.endObject()
    }

    /// Returns the lists that may be long, newest first. They have the elements that existed when the records were
    /// read.
    private func lists(_ records: UserRecords) -> [PersonalExport.List] {
        let userID = records.userID
        return [
            PersonalExport.List(name: "goal_events", records.otherRecords.goalEvents) {
                [store] before, limit throws(StorageError) in
                let events = try await store.read(.goalEvents(of: userID, before: before, limit: limit))
                return EventExport.Page(events, last: events.last?.number, EventLine.append)
            },
            PersonalExport.List(name: "audit_entries", records.otherRecords.auditEntries) {
                [store] before, limit throws(StorageError) in
                var query = AuditQuery(limit: limit)
                query.userID = userID
                query.after = before
                let entries = try await store.read(.auditEntries(query))
                return EventExport.Page(entries, last: entries.last?.id, AuditEndpoint.append)
            },
        ]
    }
}

/// A JSON object whose last members are lists, which are read from the store page by page while they are sent. The
/// object has the state of one moment. If a part of the lists is deleted during the export, the response is cut off.
final class PersonalExport: StoredStream {
    /// A list that is read newest first.
    struct List {
        let name: StaticString
        /// Reads elements before a number, newest first.
        let source: EventExport.Source
        /// The number of elements that have not been read yet.
        var remaining: Int
        /// The number before which the next page begins.
        var before: Int64
        var hasBegun = false

        init(name: StaticString, _ elements: UserRecords.Several, source: @escaping EventExport.Source) {
            self.name = name
            self.source = source
            remaining = elements.count
            // The first page includes the newest element. Adding 1 to the greatest number would overflow.
            before = elements.newest == .max ? .max : elements.newest + 1
        }
    }

    /// The bytes that have been encoded but not sent.
    private var pending: [UInt8]
    private var lists: [List]
    private var pageSize: PageSize
    private var hasEnded = false

    /// - Parameter head: the object with its first members, without its end.
    init(head: [UInt8], _ lists: [List], pageSize: Int) {
        pending = head
        self.lists = lists
        self.pageSize = PageSize(atMost: pageSize)
    }

    func next() async throws -> [UInt8]? {
        while let list = lists.first, list.remaining == 0 { endList() }
        guard let list = lists.first else {
            guard !hasEnded else { return nil }
            hasEnded = true
            return pending + Array("}\n".utf8)
        }
        let limit = min(pageSize.rows, list.remaining)
        let page = try await list.source(list.before, limit)
        guard page.count == limit else { throw Self.deletedMeanwhile }
        return append(page)
    }

    /// The error after a part of the records was deleted during the export. The list would then be incomplete.
    private static let deletedMeanwhile = Problem(
        .serviceUnavailable, "what is stored about the user must not be deleted during the export; some of it was")

    /// Writes the start of the first list, or a comma if it has begun.
    private func beginList() {
        guard !lists[0].hasBegun else { return pending.append(UInt8(ascii: ",")) }
        lists[0].hasBegun = true
        pending += Array(",\"\(lists[0].name)\":[".utf8)
    }

    /// Writes the end of the first list and removes it.
    private func endList() {
        if !lists[0].hasBegun { beginList() }
        pending.append(UInt8(ascii: "]"))
        lists.removeFirst()
    }

    /// Adds a page of the first list.
    ///
    /// - Returns: the bytes to send now.
    private func append(_ page: EventExport.Page) -> [UInt8] {
        beginList()
        defer { pending = [] }
        lists[0].remaining -= page.count
        lists[0].before = page.last
        pageSize.adjust(to: page.lines.count)
        return pending + page.lines.dropLast().map { $0 == UInt8(ascii: "\n") ? UInt8(ascii: ",") : $0 }
    }
}
