import Bucketing
import HTTPServer
import HoldfastCore
import JSON
import Storage

/// `GET /v1/profiles/{user_id}/export`: everything that is kept about one person, as one document.
struct PersonalExportEndpoint {
    let store: any ProfileStore & EventStore & AuditStore
    let projects: ProjectView
    let page: Int

    /// Responds with the document; 404 if nothing is stored.
    func get(_ request: borrowing Request, _ call: Call) throws(CoreError) {
        let userID = try request.userID()
        // Safe: used on the event loop only.
        nonisolated(unsafe) let endpoint = self
        store.records(of: userID) { result in
            call.attempt {
                let records = try result.get()
                guard !ErasedRecords(records).isEmpty else { throw ProfileEndpoints.unknown }
                let head = try endpoint.head(records)
                let export = PersonalExport(head: head, endpoint.lists(records), pageSize: endpoint.page)
                call.respond(MediaType.json, stream: export)
            }
        }
    }

    /// Encodes what the records have, without the end of the object.
    private func head(_ records: UserRecords) throws(StorageError) -> [UInt8] {
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
        for variation in records.forcedVariations {
            writer.beginObject()
            writer.member("sdk_key", variation.sdkKey)
            writer.member("experiment_key", variation.experimentKey.string)
            writer.member("variation_key", variation.variationKey.string)
            writer.endObject()
        }
        writer.endArray()
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
        writer.key("exposures")
        writer.beginArray()
        for exposure in records.exposures.sorted(by: { $0.number < $1.number }) {
            EventLine.append(exposure, to: &writer)
        }
        writer.endArray()
        return writer.finish()
    }

    /// The lists of any length, each with the last stored first, as of when the records were read.
    private func lists(_ records: UserRecords) -> [PersonalExport.List] {
        let userID = records.userID
        return [
            PersonalExport.List(name: "goal_events", records.otherRecords.goalEvents) {
                [store] before, limit, completion in
                store.goalEvents(of: userID, before: before, limit: limit) { result in
                    completion(result.map { .init($0, last: $0.last?.number, EventLine.append) })
                }
            },
            PersonalExport.List(name: "audit_entries", records.otherRecords.auditEntries) {
                [store] before, limit, completion in
                var query = AuditQuery(limit: limit)
                query.userID = userID
                query.after = before
                store.auditEntries(query) { result in
                    completion(result.map { .init($0, last: $0.last?.id, AuditEndpoint.append) })
                }
            },
        ]
    }
}

/// An object whose last members are lists that are read from the store page by page while they are sent. It has what was
/// stored at one moment, or is cut off if some of that is deleted meanwhile.
final class PersonalExport: ResponseStream {
    struct List {
        let name: StaticString
        /// Reads elements before a number, the last first.
        let source: (_ before: Int64, _ limit: Int, _ completion: @escaping Completion<EventExport.Page>) -> Void
        /// The elements that are not read yet.
        var remaining: Int
        /// Where the next page begins.
        var before: Int64
        var hasBegun = false

        init(
            name: StaticString, _ elements: UserRecords.Several,
            source: @escaping (Int64, Int, @escaping Completion<EventExport.Page>) -> Void
        ) {
            self.name = name
            self.source = source
            remaining = elements.count
            before = elements.newest == .max ? .max : elements.newest + 1
        }
    }

    /// What is encoded and not yet sent.
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

    func produce(_ writer: StreamWriter) {
        while let list = lists.first, list.remaining == 0 { endList() }
        guard let list = lists.first else {
            guard !hasEnded else { return writer.finish() }
            hasEnded = true
            return writer.write(pending + Array("}\n".utf8))
        }
        let limit = min(pageSize.rows, list.remaining)
        list.source(list.before, limit) { [self] result in
            switch result {
            case .success(let page) where page.count == limit: writer.write(append(page))
            case .success: writer.fail(Self.change.response)
            case .failure(let error): writer.fail(Problem(error).response)
            }
        }
    }

    private static let change = Problem(
        .serviceUnavailable, "what is stored about the user must not be deleted during the export; some of it was")

    private func beginList() {
        guard !lists[0].hasBegun else { return pending.append(UInt8(ascii: ",")) }
        lists[0].hasBegun = true
        pending += Array(",\"\(lists[0].name)\":[".utf8)
    }

    private func endList() {
        if !lists[0].hasBegun { beginList() }
        pending.append(UInt8(ascii: "]"))
        lists.removeFirst()
    }

    /// - Returns: what to send now.
    private func append(_ page: EventExport.Page) -> [UInt8] {
        beginList()
        defer { pending = [] }
        lists[0].remaining -= page.count
        lists[0].before = page.last
        pageSize.adjust(to: page.lines.count)
        return pending + page.lines.dropLast().map { $0 == UInt8(ascii: "\n") ? UInt8(ascii: ",") : $0 }
    }
}
