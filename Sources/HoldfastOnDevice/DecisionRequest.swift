import Bucketing
import Foundation
import HoldfastClient
import JSON

/// A request of the client for decisions, read from its JSON body or its query.
struct DecisionRequest {
    let user: User
    /// The anonymous user who has logged in as this user, until the server has merged the two.
    let anonymousID: String?
    /// The key or id of the experiment, for a request for an assignment.
    let experiment: Identifier?
    /// The key of the project; `nil` if the client's configuration has none.
    let sdkKey: String?
    /// The options of the decision. A decision never makes events here, because the client reports exposures itself.
    let options: DecideOptions
    /// The tags that select flags; `nil` for all flags.
    private let tags: Set<Identifier>?

    /// Reads the body of the request. If there is no body, reads the query.
    ///
    /// - Throws: ``HoldfastError/invalidArgument(_:)`` if the body is not a JSON object.
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

    /// Returns the requested flags in the order of the datafile: all flags, or the flags that have one of the tags.
    func flags(in datafile: Datafile) -> [Identifier] {
        guard let tags else { return datafile.flags.map(\.key) }
        return datafile.flags.filter { !tags.isDisjoint(with: $0.annotations.tags) }.map(\.key)
    }
}
