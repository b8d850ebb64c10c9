import Bucketing
import HTTPServer
import HoldfastCore
import JSON
import Storage

/// `POST /v1/logins`: an app reports that its anonymous user has logged in, which joins the two.
///
/// It is fit for tokens of scope `client`, unlike the merge of any two users: it takes only anonymous ids that nobody can
/// guess, what the account has always wins, and the response tells nothing of the profile.
struct LoginEndpoint {
    let services: Services
    let store: any ProfileStore

    /// One login or an array of them. Responds when all are durable; in an array each has its own result.
    func post(_ request: borrowing Request, _ call: Call) throws(CoreError) {
        let list = try ReportList(request, limit: services.options.elementLimit)
        let merges = try list.parse(Self.merge)
        let author = call.author(request)
        let results = LoginResults(merges, list, services, call, store: store, author: author)
        services.events.afterWaiting {
            call.onEventLoop { results.begin() }
        } ifOverloaded: {
            call.fail($0)
        }
    }

    /// `{"user_id","anonymous_id"}`
    private static func merge(_ value: JSONValue, at place: JSONPointer) throws(CoreError) -> ProfileMerge {
        let object = try value.object("a login", knowing: ["user_id", "anonymous_id"], at: place)
        let userID = try ProfileInput.checkUserID(
            try object.text("user_id", in: place), at: place.appending("user_id"))
        let text = try object.text("anonymous_id", in: place)
        guard ProfileInput.isUnguessable(anonymousID: text) else {
            throw CoreError(
                .invalid,
                "`anonymous_id` must be 'anonymous-' and a random UUID (version 4); got '\(text.shortened(to: CoreError.longestQuote))'",
                at: place.appending("anonymous_id"))
        }
        guard userID.string != text else {
            throw CoreError(
                .invalid, "`user_id` must be another user than `anonymous_id`", at: place.appending("user_id"))
        }
        return ProfileMerge(userID: userID, anonymousID: Identifier(text), conflictRule: .keep)
    }
}

/// Performs the logins of one request and collects their results.
private final class LoginResults: @unchecked Sendable {
    // Safe: after its creation it is used on the event loop of the request only.
    private let merges: [Result<ProfileMerge, CoreError>]
    private let list: ReportList
    private let services: Services
    private let call: Call
    private let store: any ProfileStore
    private let author: Author
    private var outcomes: [Result<ReportList.Status, EventRefusal>]
    private var missing: Int
    private var hasChanged = false

    init(
        _ merges: [Result<ProfileMerge, CoreError>], _ list: ReportList, _ services: Services, _ call: Call,
        store: any ProfileStore, author: Author
    ) {
        self.merges = merges
        self.list = list
        self.services = services
        self.call = call
        self.store = store
        self.author = author
        outcomes = Array(repeating: .success(.stored), count: merges.count)
        missing = merges.count
    }

    func begin() {
        guard missing > 0 else { return respond() }
        call.forEach(merges.indices) { [self] index in
            switch merges[index] {
            case .success(let merge): store.merge(merge, by: author) { [self] in add($0, at: index) }
            case .failure(let error): refuse(EventRefusal(error), at: index)
            }
        }
    }

    private func add(_ result: Result<ProfileMergeResult, StorageError>, at index: Int) {
        switch result {
        case .success(let merged):
            services.knownExposures.remove(merged.takenExposures)
            hasChanged = hasChanged || merged.changed
            settle()
        case .failure(let error):
            var error = CoreError(error)
            error.pointer = nil
            refuse(EventRefusal(error, isRetriable: error.kind == .unavailable), at: index)
        }
    }

    private func refuse(_ refusal: EventRefusal, at index: Int) {
        outcomes[index] = .failure(refusal)
        settle()
    }

    private func settle() {
        missing -= 1
        guard missing == 0 else { return }
        guard hasChanged else { return respond() }
        // Variations forced for a test may have moved.
        services.projects.refresh { [self] refreshed in
            if case .failure(let error) = refreshed { return call.fail(error) }
            respond()
        }
    }

    private func respond() {
        list.respond(outcomes.map { (id: nil, outcome: $0) }, to: call)
    }
}
