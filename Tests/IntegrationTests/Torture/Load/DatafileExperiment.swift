import APITestSupport
import ProcessTestSupport

/// An experiment that the server buckets users into.
struct DatafileExperiment: Sendable {
    let key: String
    let id: String
    let variations: [String]

    static let all = [
        DatafileExperiment(key: "alpha", id: "9001", variations: ["90011", "90012", "90013"]),
        DatafileExperiment(key: "beta", id: "9002", variations: ["90021", "90022"]),
    ]

    /// Of a request in the Agent's protocol, and of no importance to others.
    static let fields = ["X-Optimizely-SDK-Key: default", "Content-Type: application/json"]

    static func key(of id: String) -> String {
        all.first { $0.id == id }?.key ?? id
    }

    /// The id of a variation by its key.
    static func variation(ofKey key: String) -> String {
        String(key.dropFirst())
    }

    /// Activates all, and waits until each server on the database knows them.
    static func make(on servers: [ServerProcess]) throws {
        for experiment in all {
            let response = try servers[0].request(
                "PUT", "/v1/experiments/\(experiment.key)", experiment.definition(favouring: 0))
            guard response.status == 201 else { throw TestFailure("no experiment: \(response.text)") }
        }
        let deadline = ContinuousClock.now + .seconds(60)
        for server in servers {
            let client = try server.client()
            for experiment in all {
                while try client.request("GET", "/v1/experiments/\(experiment.key)").status != 200 {
                    guard .now < deadline else { throw TestFailure("another server's experiment is not seen") }
                }
            }
        }
    }

    /// The body that leaves it some of its variations, most new users getting the first of these.
    func definition(of variations: [String]) -> String {
        let rest = 1_000
        let list = variations.enumerated().map { index, id in
            let weight = index == 0 ? 10_000 - rest * (variations.count - 1) : rest
            return "{\"key\":\"k\(id)\",\"id\":\"\(id)\",\"weight\":\(weight)}"
        }
        return "{\"variations\":[\(list.joined(separator: ","))]}"
    }

    /// The body that makes it, or changes its weights so that most new users get the variation of this number.
    func definition(favouring favourite: Int) -> String {
        let rest = 1_000
        let list = variations.indices.map { index in
            let weight = index == favourite % variations.count ? 10_000 - rest * (variations.count - 1) : rest
            return "{\"key\":\"k\(variations[index])\",\"id\":\"\(variations[index])\",\"weight\":\(weight)}"
        }
        return "{\"id\":\"\(id)\",\"variations\":[\(list.joined(separator: ","))]}"
    }
}
