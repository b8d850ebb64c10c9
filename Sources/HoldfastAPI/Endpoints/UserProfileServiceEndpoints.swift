import Bucketing
import HTTPServer
import JSON
import Storage

/// `/ups/lookup` and `/ups/save`: the User Profile Service contract that SDKs and the Optimizely Agent's `rest`
/// service call, with `POST` and a body or with `GET` and a query. Query parameters beside those of the contract are
/// let pass, as the Agent keeps those of its configured path.
struct UserProfileServiceEndpoints {
    let store: any ProfileStore
    let reader: any ProfileReader

    func postLookup(_ request: borrowing Request, _ call: Call) {
        do throws(Problem) {
            lookUp(try request.withBody { bytes throws(Problem) in try Self.userID(bytes) }, call)
        } catch {
            call.fail(error)
        }
    }

    private static func userID(_ bytes: UnsafeRawBufferPointer) throws(Problem) -> Identifier {
        let value = try ProfileBody.parse(bytes)
        guard let object = value.object else {
            throw Problem(.badRequest, "a lookup must be an object; got \(value.kind)", at: [])
        }
        guard let member = object["user_id"] else {
            throw Problem(.badRequest, "`user_id` is required", at: ["user_id"])
        }
        guard let text = member.string else {
            throw Problem(.badRequest, "`user_id` must be a string; got \(member.kind)", at: ["user_id"])
        }
        return try ProfileBody.checkUserID(text, at: ["user_id"])
    }

    private static func userID(_ query: [String: String]) throws(Problem) -> Identifier {
        guard let text = query["user_id"] else {
            throw Problem(.badRequest, "the query parameter `user_id` is required")
        }
        return try ProfileBody.checkUserID(text, at: ["user_id"])
    }

    func getLookup(_ request: borrowing Request, _ call: Call) {
        do throws(Problem) {
            lookUp(try Self.userID(try request.queryOfContract()), call)
        } catch {
            call.fail(error)
        }
    }

    /// A user without a profile is answered with an empty map.
    private func lookUp(_ userID: Identifier, _ call: Call) {
        reader.profile(of: userID) { result in
            switch result {
            case .success(let profile): call.answer(json: ProfileJSON.encode(userID, profile))
            case .failure(let error): call.fail(error)
            }
        }
    }

    func postSave(_ request: borrowing Request, _ call: Call) {
        do throws(Problem) {
            let rule = try Request.conflictRule(request.queryOfContract())
            save(try request.withBody { bytes throws(Problem) in try ProfileBody(bytes) }, rule, call)
        } catch {
            call.fail(error)
        }
    }

    func getSave(_ request: borrowing Request, _ call: Call) {
        do throws(Problem) {
            let query = try request.queryOfContract()
            let rule = try Request.conflictRule(query)
            let userID = try Self.userID(query)
            guard let text = query["experiment_bucket_map"] else {
                throw Problem(.badRequest, "the query parameter `experiment_bucket_map` is required")
            }
            let map = try ProfileBody.parse(parameter: "experiment_bucket_map", text)
            save(ProfileBody(userID: userID, assignments: try ProfileBody.assignments(map)), rule, call)
        } catch {
            call.fail(error)
        }
    }

    private func save(_ body: ProfileBody, _ rule: ProfileChange.ConflictRule, _ call: Call) {
        let change = ProfileChange(userID: body.userID, operation: .merge(body.assignments, onConflict: rule))
        store.submit(change) { result in
            // The store's thread is the one that all saves wait for: it has better things to do than to write JSON.
            call.onEventLoop {
                switch result {
                case .success(let result): call.answer(json: ProfileJSON.encode(change.userID, result.profile))
                case .failure(let error): call.fail(error)
                }
            }
        }
    }
}

extension Request {
    fileprivate func queryOfContract() throws(Problem) -> [String: String] {
        guard hasQuery else { return [:] }
        guard let items = queryItems() else { throw Problem(.badRequest, "the query must be UTF-8") }
        return Dictionary(items.map { ($0.name, $0.value) }, uniquingKeysWith: { first, _ in first })
    }
}
