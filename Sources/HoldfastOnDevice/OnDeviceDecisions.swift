import Bucketing
import Chronology
public import Foundation
public import HoldfastClient
import JSON

/// Decides flags and split tests on the device, by the code with which the server decides: without the network, and
/// without sending attributes. Give it to a client as its transport:
///
/// ```swift
/// let configuration = HoldfastConfiguration(endpoint: endpoint, token: token, sdkKey: "shop")
/// let client = try HoldfastClient(
///     configuration: configuration, transport: try OnDeviceDecisions(directory: configuration.directory))
/// ```
///
/// When the client asks for evaluations, the transport fetches the project's datafile, if it has changed, and keeps it
/// on disk. While the server cannot be reached, it decides with the kept datafile. The variations of earlier decisions
/// are in a file: a user keeps them, and a login takes over the variations of the anonymous user. The client's
/// exposures tell the server which variation the user has, so that results are the same. All other requests are passed
/// to the base transport.
///
/// Data that only the server has does not affect decisions: overrides of an administrator, stored attributes and
/// segments, and variations that the user has got on other devices. Everybody who has the app can read the datafile, so
/// it must not target secret groups.
public final class OnDeviceDecisions: HoldfastTransport {
    private let base: any HoldfastTransport
    private let datafiles: DatafileCache
    private let profiles: DeviceUserProfileService
    /// How long a device that has a datafile waits for a newer one before it decides.
    private let patience: Duration

    /// - Parameters:
    ///   - directory: the directory of the client, ``HoldfastConfiguration/directory``.
    ///   - assignmentTTL: how long a variation is kept after it was decided, if neither the experiment nor the project
    ///     has an `assignment_ttl`, as with the server's option `--assignment-ttl`; `nil` for ever.
    ///   - patience: how long a device that has a datafile waits for a newer one before it decides.
    ///   - base: sends all requests that are not decided on the device.
    ///   - clock: the clock by which the lifetimes of variations end.
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
        if request.method == "POST", path.hasSuffix("/v1/logins") { copyVariations(request) }
        return try await base.open(request)
    }

    /// Copies the variations of anonymous users to the accounts as which they log in. It happens before the server
    /// merges the two, because afterwards the client asks for the account alone.
    private func copyVariations(_ request: TransportRequest) {
        guard let body = request.body, let logins = try? JSONDecoder().decode([LoginEvent].self, from: body) else {
            return
        }
        for login in logins { profiles.copy(from: login.anonymousID, to: login.userID) }
    }

    // MARK: Decisions

    /// Answers a request for all flags as the server would, with the user's new assignments kept.
    private func evaluate(_ request: TransportRequest, root: String) async throws(HoldfastError) -> TransportResponse {
        let question = try DecisionRequest(request)
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

    /// Answers a request for the assignment in one experiment as the server would.
    private func assign(_ request: TransportRequest, root: String) async throws(HoldfastError) -> TransportResponse {
        let question = try DecisionRequest(request)
        guard let datafile = try await datafile(question, request, root) else { return Self.unknownProject(question) }
        guard let name = question.experiment,
            let experiment = datafile.experiment(key: name) ?? datafile.experiment(id: name)
        else {
            return Self.problem("no experiment has the key or id '\(question.experiment?.string ?? "")'", "/experiment")
        }
        let decision = DecisionService(datafile: datafile).assign(
            experiment, for: question.user, stored: stored(question), options: question.options)
        // A GET is a preview, which stores nothing.
        if request.method == "POST" {
            keep([decision.newAssignment].compactMap(\.self), question, datafile)
        }
        return Self.response(200, decision.encoded())
    }

    /// Returns the user's variations of earlier decisions. In experiments in which the user has none, returns the
    /// variations of the anonymous user who has logged in as this user.
    private func stored(_ question: DecisionRequest) -> [Identifier: StoredAssignment] {
        var stored: [Identifier: StoredAssignment] = [:]
        // The anonymous user is first, so that the user's own variations replace its variations.
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

    /// Keeps new assignments with the lifetimes that the datafile defines.
    private func keep(_ assignments: [NewAssignment], _ question: DecisionRequest, _ datafile: Datafile) {
        guard !assignments.isEmpty else { return }
        var profile = UserProfile(userID: question.user.id.string)
        var lifetimes: [String: Double] = [:]
        for assignment in assignments {
            let name = assignment.experimentID.string
            profile.experimentBucketMap[name] = assignment.variationID.string
            guard let experiment = datafile.experiment(id: assignment.experimentID),
                let lifetime = datafile.assignmentLifetime(of: experiment)
            else { continue }
            // An unlimited lifetime has no span. `save` takes 0 for it.
            lifetimes[name] = lifetime.span?.inSeconds ?? 0
        }
        profiles.save(profile, lifetimes: lifetimes)
    }

    // MARK: The datafile

    /// Returns the project's datafile. It is fetched from the server. If the server has no newer one, or cannot be
    /// reached, the kept datafile is returned.
    ///
    /// - Parameter root: the path of the request below the server's endpoint.
    /// - Returns: `nil` if the server has no such project.
    private func datafile(
        _ question: DecisionRequest, _ request: TransportRequest, _ root: String
    ) async throws(HoldfastError) -> Datafile? {
        guard let sdkKey = question.sdkKey else {
            throw .invalidConfiguration("decisions on the device need HoldfastConfiguration.sdkKey")
        }
        let kept = datafiles.entry(sdkKey)
        var endpoint = request.url
        for _ in root.split(separator: "/") { endpoint.deleteLastPathComponent() }
        var fetch = TransportRequest(
            method: "GET", url: endpoint.appendingPathComponent("datafiles/\(sdkKey).json"),
            timeout: kept == nil ? request.timeout : min(patience, request.timeout))
        fetch.fields["Authorization"] = request.fields["Authorization"]
        fetch.fields["If-None-Match"] = kept?.entityTag
        do throws(HoldfastError) {
            return try await self.fetch(fetch, of: sdkKey, kept: kept)
        } catch {
            // The kept datafile is valid until a response of the server replaces it.
            guard let kept, error.leavesKeptDatafile else { throw error }
            return kept.datafile
        }
    }

    /// Fetches a datafile, and keeps it.
    ///
    /// - Returns: `nil` if the server has no such project.
    private func fetch(
        _ request: TransportRequest, of sdkKey: String, kept: DatafileCache.Entry?
    ) async throws(HoldfastError) -> Datafile? {
        let response = try await base.open(request)
        var body = Data()
        do { for try await piece in response.body { body += piece } } catch {
            throw error as? HoldfastError ?? .unreachable("\(error)")
        }
        switch response.status {
        case 200: return try datafiles.keep(body, response.fields["etag"], sdkKey).datafile
        // Without a kept datafile the request has no condition, and this status is an error.
        case 304: if let kept { return kept.datafile }
        case 404: return nil
        case 401, 403: throw .unauthorized(detail: "the token may not read the datafile (\(response.status))")
        default: break
        }
        throw .unavailable(status: response.status, retryAfter: nil)
    }

    // MARK: Responses

    /// Returns a response with a JSON body, as the server would send it.
    private static func response(_ status: Int, _ json: [UInt8], _ entityTag: String? = nil) -> TransportResponse {
        let (body, continuation) = AsyncThrowingStream<Data, any Error>.makeStream()
        continuation.yield(Data(json))
        continuation.finish()
        var fields = ["content-type": status < 400 ? "application/json" : "application/problem+json"]
        fields["etag"] = entityTag
        return TransportResponse(status: status, fields: fields, body: body)
    }

    private static func unknownProject(_ question: DecisionRequest) -> TransportResponse {
        problem("no project has the SDK key '\(question.sdkKey ?? "")'", nil)
    }

    /// Returns a response of status 404 with a problem (RFC 9457).
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
    /// Whether a kept datafile is still valid after the error: the server was not reached, or did not respond as
    /// Holdfast.
    fileprivate var leavesKeptDatafile: Bool {
        switch self {
        case .unreachable, .timedOut, .unavailable, .invalidResponse: true
        default: false
        }
    }
}
