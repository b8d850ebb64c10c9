import Bucketing
import Chronology
public import Foundation
public import HoldfastClient
import JSON

/// Decides flags and split tests on the device, by the code with which the server decides: without the network, and without
/// sending attributes. Give it to a client as its transport:
///
/// ```swift
/// let configuration = HoldfastConfiguration(endpoint: endpoint, token: token, sdkKey: "shop")
/// let client = try HoldfastClient(
///     configuration: configuration, transport: try OnDeviceDecisions(directory: configuration.directory))
/// ```
///
/// Where the client would ask the server for evaluations, this fetches the project's datafile, if it has changed, and keeps
/// it on disk; while the server cannot be reached it decides from the one that it has. A user keeps the variations of earlier
/// decisions, which are in a file, and a login takes over those of the anonymous user. The client's exposures tell the server
/// which variation the user has, so that results are the same. All other requests go through.
///
/// What only the server knows has no effect here: overrides of an admin, attributes and segments that are stored there, and
/// the variations that a user has got elsewhere. Everybody who has the app can read the datafile: what it targets is no secret.
public final class OnDeviceDecisions: HoldfastTransport {
    private let base: any HoldfastTransport
    private let datafiles: DatafileCache
    private let profiles: DeviceUserProfileService
    /// How long a device that has a datafile waits for a newer one.
    private let patience: Duration

    /// - Parameters:
    ///   - directory: that of the client, ``HoldfastConfiguration/directory``.
    ///   - assignmentTTL: how long a variation is kept after it was decided, if neither the experiment nor the project has an
    ///     `assignment_ttl`, as with the server's option `--assignment-ttl`; `nil` for ever.
    ///   - patience: how long a device that has a datafile waits for a newer one before it decides.
    ///   - base: sends the requests that remain.
    /// - Throws: ``HoldfastError/storage(_:)`` if the file of variations exists and cannot be read.
    public init(
        directory: URL, assignmentTTL: Duration? = nil, patience: Duration = .seconds(3),
        over base: any HoldfastTransport = URLSessionTransport(), clock: any HoldfastClock = SystemClock()
    ) throws(HoldfastError) {
        self.base = base
        self.patience = patience
        datafiles = DatafileCache(directory: directory)
        profiles = try DeviceUserProfileService(
            file: directory.appendingPathComponent("variations.json"), assignmentTTL: assignmentTTL, clock: clock)
    }

    public func close() { base.close() }

    public func open(_ request: TransportRequest) async throws(HoldfastError) -> TransportResponse {
        let path = request.url.path
        if request.method == "POST", path.hasSuffix("/v1/evaluations") {
            return try await evaluate(request, root: "v1/evaluations")
        }
        if path.hasSuffix("/v1/assign") { return try await assign(request, root: "v1/assign") }
        if request.method == "POST", path.hasSuffix("/v1/logins") { takeOver(request) }
        return try await base.open(request)
    }

    /// Gives accounts the variations of the anonymous users who log in as these, before the server merges them: afterwards the
    /// client asks for the account alone.
    private func takeOver(_ request: TransportRequest) {
        guard let body = request.body, let logins = try? JSONDecoder().decode([LoginEvent].self, from: body) else {
            return
        }
        for login in logins { profiles.copy(from: login.anonymousID, to: login.userID) }
    }

    // MARK: Decisions

    private func evaluate(_ request: TransportRequest, root: String) async throws(HoldfastError) -> TransportResponse {
        let question = try Question(request)
        guard let datafile = try await datafile(question, request, root) else { return Self.unknownProject(question) }
        let result = DecisionService(datafile: datafile).decide(
            question.flags(in: datafile), for: question.user, stored: stored(question), options: question.options)
        keep(result.newAssignments, question, datafile)
        var writer = JSONWriter()
        writer.beginObject()
        writer.member("user_id", question.user.id.string)
        writer.member("revision", datafile.revision)
        writer.key("evaluations")
        writer.beginArray()
        for decision in result.value { FlagEvaluation(decision, datafile).append(to: &writer) }
        writer.endArray()
        writer.endObject()
        let body = writer.finish()
        let hash = body.withUnsafeBytes { MurmurHash3.hash($0, seed: 1) }
        let tag = "\"\(String(hash, radix: 16))-\(body.count)\""
        guard request.fields["If-None-Match"] != tag else { return Self.response(304, [], tag) }
        return Self.response(200, body, tag)
    }

    private func assign(_ request: TransportRequest, root: String) async throws(HoldfastError) -> TransportResponse {
        let question = try Question(request)
        guard let datafile = try await datafile(question, request, root) else { return Self.unknownProject(question) }
        guard let name = question.experiment,
            let experiment = datafile.experiment(key: name) ?? datafile.experiment(id: name)
        else {
            return Self.problem("no experiment has the key or id '\(question.experiment?.string ?? "")'", "/experiment")
        }
        let decision = DecisionService(datafile: datafile).assign(
            experiment, for: question.user, stored: stored(question), options: question.options)
        // A GET only looks.
        if request.method == "POST" {
            keep([decision.newAssignment].compactMap(\.self), question, datafile)
        }
        return Self.response(200, decision.encoded())
    }

    /// The variations that the user has, then those of the anonymous user who has logged in as this one.
    private func stored(_ question: Question) -> [Identifier: StoredAssignment] {
        var stored: [Identifier: StoredAssignment] = [:]
        let owners: [(userID: String?, isAnonymous: Bool)] = [
            (question.anonymousID, true), (question.user.id.string, false),
        ]
        for (userID, isAnonymous) in owners {
            guard let profile = userID.flatMap({ profiles.lookup(userID: $0) }) else { continue }
            for (experiment, variation) in profile.experimentBucketMap {
                stored[Identifier(experiment)] = StoredAssignment(
                    variationID: Identifier(variation), isFromAnonymousProfile: isAnonymous)
            }
        }
        return stored
    }

    private func keep(_ assignments: [NewAssignment], _ question: Question, _ datafile: Datafile) {
        guard !assignments.isEmpty else { return }
        var profile = UserProfile(userID: question.user.id.string)
        var lifetimes: [String: Double] = [:]
        for assignment in assignments {
            let name = assignment.experimentID.string
            profile.experimentBucketMap[name] = assignment.variationID.string
            guard let experiment = datafile.experiment(id: assignment.experimentID),
                let lifetime = datafile.assignmentLifetime(of: experiment)
            else { continue }
            lifetimes[name] = lifetime.span?.inSeconds ?? 0
        }
        profiles.save(profile, lifetimes: lifetimes)
    }

    // MARK: The datafile

    /// - Returns: `nil` if the server has no such project.
    private func datafile(
        _ question: Question, _ request: TransportRequest, _ root: String
    ) async throws(HoldfastError) -> Datafile? {
        guard let sdkKey = question.sdkKey else {
            throw .invalidConfiguration("decisions on the device need HoldfastConfiguration.sdkKey")
        }
        let known = datafiles.known(sdkKey)
        var endpoint = request.url
        for _ in root.split(separator: "/") { endpoint.deleteLastPathComponent() }
        var fetch = TransportRequest(
            method: "GET", url: endpoint.appendingPathComponent("datafiles/\(sdkKey).json"),
            timeout: known == nil ? request.timeout : min(patience, request.timeout))
        fetch.fields["Authorization"] = request.fields["Authorization"]
        fetch.fields["If-None-Match"] = known?.entityTag
        do throws(HoldfastError) {
            let response = try await base.open(fetch)
            var body = Data()
            do { for try await piece in response.body { body += piece } } catch {
                throw error as? HoldfastError ?? .unreachable("\(error)")
            }
            switch response.status {
            case 200: return try datafiles.keep(body, response.fields["etag"], sdkKey).datafile
            case 304: if let known { return known.datafile }
            case 404: return nil
            case 401, 403: throw .unauthorized(detail: "the token may not read the datafile (\(response.status))")
            default: break
            }
            throw .unavailable(status: response.status, retryAfter: nil)
        } catch {
            // What the device has is right until the server says otherwise.
            guard let known, error.isOfTheNetwork else { throw error }
            return known.datafile
        }
    }

    // MARK: Responses

    private static func response(_ status: Int, _ json: [UInt8], _ entityTag: String? = nil) -> TransportResponse {
        let (body, continuation) = AsyncThrowingStream<Data, any Error>.makeStream()
        continuation.yield(Data(json))
        continuation.finish()
        var fields = ["content-type": status < 400 ? "application/json" : "application/problem+json"]
        fields["etag"] = entityTag
        return TransportResponse(status: status, fields: fields, body: body)
    }

    private static func unknownProject(_ question: Question) -> TransportResponse {
        problem("no project has the SDK key '\(question.sdkKey ?? "")'", nil)
    }

    private static func problem(_ detail: String, _ pointer: String?) -> TransportResponse {
        var problem = JSONObject()
        problem["title"] = "Not Found"
        problem["status"] = 404
        problem["detail"] = .string(detail)
        problem["pointer"] = pointer.map { .string($0) }
        return response(404, JSONValue.object(problem).encoded())
    }
}

extension HoldfastError {
    /// Whether the server may be right nevertheless: it was not reached, or is overloaded.
    fileprivate var isOfTheNetwork: Bool {
        switch self {
        case .unreachable, .timedOut, .unavailable, .invalidResponse: true
        default: false
        }
    }
}

/// What the client asks: the members of a body, or of a query.
private struct Question {
    let user: User
    let anonymousID: String?
    let experiment: Identifier?
    let sdkKey: String?
    let options: DecideOptions
    private let tags: Set<Identifier>?

    init(_ request: TransportRequest) throws(HoldfastError) {
        var object = JSONObject()
        if let body = request.body {
            guard let json = (try? JSONParser().parse(Array(body)))?.object else {
                throw .invalidArgument("the body of \(request.url.path) must be an object")
            }
            object = json
        } else {
            for item in URLComponents(url: request.url, resolvingAgainstBaseURL: false)?.queryItems ?? [] {
                let text = item.value ?? ""
                object[item.name] =
                    item.name == "attributes" ? (try? JSONParser().parse(text)) ?? .null : .string(text)
            }
        }
        user = User(
            id: Identifier(object["user_id"]?.string ?? ""), attributes: object["attributes"]?.object ?? JSONObject())
        anonymousID = object["anonymous_id"]?.string
        experiment = object["experiment"]?.string.map { Identifier($0) }
        sdkKey = object["sdk_key"]?.string
        tags = object["tags"]?.array.map { Set($0.compactMap(\.string).map { Identifier($0) }) }
        options =
            object["include_reasons"]?.bool == true
            ? [.disableDecisionEvent, .includeAllReasons] : .disableDecisionEvent
    }

    /// The flags that it asks for, in the order of the datafile.
    func flags(in datafile: Datafile) -> [Identifier] {
        datafile.flags.filter { flag in tags.map { !$0.isDisjoint(with: flag.annotations.tags) } ?? true }.map(\.key)
    }
}

/// The datafile of a project, in memory and on disk.
private final class DatafileCache: Sendable {
    struct Known: Sendable {
        let datafile: Datafile
        let entityTag: String?
    }

    private struct Stored: Codable {
        var entityTag: String?
        var json: Data
    }

    private let directory: URL
    private let lock = NSLock()
    private nonisolated(unsafe) var all: [String: Known] = [:]  // inside the lock only

    init(directory: URL) {
        self.directory = directory
    }

    private func file(_ sdkKey: String) -> URL {
        let name = String(Array(sdkKey.utf8).withUnsafeBytes { MurmurHash3.hash($0, seed: 1) }, radix: 16)
        return directory.appendingPathComponent("datafile-\(name).cache")
    }

    func known(_ sdkKey: String) -> Known? {
        lock.withLock {
            if let known = all[sdkKey] { return known }
            guard let data = try? Data(contentsOf: file(sdkKey)),
                let stored = try? PropertyListDecoder().decode(Stored.self, from: data),
                let json = try? JSONParser().parse(Array(stored.json)), let datafile = try? Datafile(json)
            else { return nil }
            let known = Known(datafile: datafile, entityTag: stored.entityTag)
            all[sdkKey] = known
            return known
        }
    }

    /// - Throws: ``HoldfastError/invalidResponse(_:)`` for what is no datafile; the former one stays.
    func keep(_ body: Data, _ entityTag: String?, _ sdkKey: String) throws(HoldfastError) -> Known {
        let former = known(sdkKey)?.datafile
        let datafile: Datafile
        do {
            datafile = try Datafile(try JSONParser().parse(Array(body)), similarTo: former)
        } catch {
            throw .invalidResponse("not a datafile: \(error)")
        }
        let known = Known(datafile: datafile, entityTag: entityTag)
        return lock.withLock {
            all[sdkKey] = known
            let encoder = PropertyListEncoder()
            encoder.outputFormat = .binary
            // Without a place on disk the next run fetches it again.
            if let data = try? encoder.encode(Stored(entityTag: entityTag, json: body)) {
                try? data.write(to: file(sdkKey), options: .atomic)
            }
            return known
        }
    }
}
