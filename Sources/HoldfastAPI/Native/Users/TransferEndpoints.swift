import Bucketing
import Definitions
import HTTPServer
import HoldfastCore
import JSON
import Storage

/// `GET` and `POST /v1/profiles`: exports and imports all profiles, one JSON object per line, in constant memory.
struct TransferEndpoints {
    let services: Services
    let store: any StoreSession

    /// Exports all profiles in the byte order of their user ids. `?after=USER_ID` resumes after a user, `?limit=N` ends
    /// after N profiles, `?detail=true` adds source and times of each assignment, `?format=json` returns a page.
    func exportProfiles(_ request: borrowing Request, _ call: Call) throws(CoreError) -> Response {
        let query = try request.query(knowing: ["after", "limit", "detail", "format"])
        var after: Identifier?
        if let text = query["after"] { after = try ProfileInput.checkUserID(text, at: nil) }
        let form = try ExportForm(query, of: "profiles")
        let stream = ProfileExport(
            form, reader: store, after: after, pageSize: services.options.exportPage,
            detail: try Request.flag("detail", query))
        return call.response(form.contentType, stream: stream)
    }

    /// Saves the profile of each line, as `PATCH` does. Assignments from an export with detail are restored. The
    /// response has the number of imported lines, and the refused lines with the reasons. With `?on_conflict=keep`
    /// stored assignments win.
    func importProfiles(_ request: borrowing Request, _ call: Call) throws(CoreError) -> any BodyReceiver {
        let rule = try Request.conflictRule(request.query(knowing: ["on_conflict"]))
        let author = call.author(request)
        return LineImport(call: call, options: services.options) { line throws(CoreError) in
            let profile = try ProfileInput(line: line)
            if !call.mayOverride, let place = profile.restoredOverride {
                let scope = call.access == .all ? "admin" : "admin for all projects"
                throw CoreError(
                    .unprocessable, "an override must be imported with a token of the scope \(scope)", at: place)
            }
            return profile.change(onConflict: rule)
        } submit: { changes in
            await settled { store.submit(changes, by: author, $0) }.map(Self.outcome)
        }
    }

    /// Returns the outcome of the line that requested a change.
    private static func outcome(_ result: Result<ProfileChangeResult, StorageError>) -> LineOutcome {
        switch result {
        case .success(let result): result.changed ? .changed : .unchanged
        case .failure(let error): .init(error)
        }
    }
}

/// The lines of an export, read from the store page by page while they are sent. Each page is a separate read, so that
/// a slow client does not keep a snapshot of the store open. So the export is consistent for each user, but not as a
/// whole.
final class ProfileExport: StoredStream {
    private var form: ExportForm
    private let reader: any StoreSession
    private var pageSize: PageSize
    /// Whether assignments have their source and times.
    private let detail: Bool
    /// The last user who was read.
    private var after: Identifier?
    /// The number of profiles that may still be exported until the limit is reached.
    private var remaining: Int
    /// Whether the store has no further profiles.
    private var isAtEnd = false

    /// - Parameters:
    ///   - after: the user after whom the export begins; `nil` for all users.
    ///   - pageSize: the maximum number of profiles that are read at once.
    init(_ form: ExportForm, reader: any StoreSession, after: Identifier?, pageSize: Int, detail: Bool) {
        self.form = form
        self.reader = reader
        self.after = after
        self.pageSize = PageSize(atMost: pageSize)
        self.detail = detail
        remaining = form.limit
    }

    func next() async throws -> [UInt8]? {
        guard remaining > 0, !isAtEnd else { return try await end() }
        let page = try await reader.read(.profiles(after: after, limit: min(pageSize.rows, remaining)))
        after = page.end
        isAtEnd = page.end == nil
        remaining -= page.profiles.count
        let lines = lines(page.profiles)
        pageSize.adjust(to: lines.count)
        return lines.isEmpty ? [] : form.piece(lines)
    }

    /// Returns the end of a page in JSON, which says whether there is another page; `nil` for lines, which have no end.
    private func end() async throws(StorageError) -> [UInt8]? {
        guard form.awaitsEnd else { return nil }
        guard let after, !isAtEnd else { return form.end(next: .null) }
        let page = try await reader.read(.profiles(after: after, limit: 1))
        let hasMore = !page.profiles.isEmpty || page.end != nil
        return form.end(next: hasMore ? .string(after.string) : .null)
    }

    /// Encodes profiles as lines.
    private func lines(_ profiles: [(userID: Identifier, profile: ProfileRecord)]) -> [UInt8] {
        var bytes: [UInt8] = []
        for (userID, profile) in profiles { bytes += ProfileLine.encode(userID, profile, detail: detail) }
        return bytes
    }
}
