import Bucketing
import HTTPServer
import Storage

/// `GET` and `POST /v1/profiles`: all profiles out and in, one JSON object a line, in constant memory.
struct TransferEndpoints {
    let services: Services
    let reader: any ProfileReader

    /// All profiles in the order of their user ids' bytes. `?after=USER_ID` resumes behind a user, `?limit=N` ends
    /// after N, `?detail=true` adds where each assignment came from, `?format=json` answers a page.
    func exportProfiles(_ request: borrowing Request, _ call: Call) {
        do throws(Problem) {
            let query = try request.query(knowing: ["after", "limit", "detail", "format"])
            var after: Identifier?
            if let text = query["after"] { after = try ProfileBody.checkUserID(text, at: nil) }
            let form = try ExportForm(query, of: "profiles")
            let stream = ProfileExport(
                form, reader: reader, after: after, page: services.options.exportPage,
                detail: try Request.flag("detail", query))
            call.answer(form.contentType, stream: stream)
        } catch {
            call.fail(error)
        }
    }

    /// Saves a profile from each line, as `PATCH` would. Answers how many lines were imported, and which were refused
    /// and why. With `?on_conflict=keep` what is stored wins.
    func importProfiles(_ request: borrowing Request, _ call: Call) -> (any BodyReceiver)? {
        do throws(Problem) {
            let rule = try Request.conflictRule(request.query(knowing: ["on_conflict"]))
            let profiles = services.profiles
            return LineImport(call: call, options: services.options) { line throws(Problem) in
                try ProfileLine.parse(line, rule)
            } submit: { changes, finished in
                profiles.submit(changes) { finished($0.map(Self.outcome)) }
            }
        } catch {
            call.fail(error)
            return nil
        }
    }

    private static func outcome(_ result: Result<ProfileChangeResult, StorageError>) -> LineOutcome {
        switch result {
        case .success(let result): result.changed ? .changed : .unchanged
        case .failure(let error): .init(error)
        }
    }
}
