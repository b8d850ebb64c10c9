import APITestSupport
import JSON
import Testing

/// Whatever protocol an app speaks, a user gets the same variation.
@Suite struct ProtocolAgreementTests {
    @Test func `All protocols give a user one variation, whichever is asked first and whatever the weights became`()
        throws
    {
        let server = try startTestServer()
        func put(_ control: Int, _ new: Int) throws {
            let response = try server.request(
                "PUT", "/v1/experiments/checkout",
                #"{"variations":[{"key":"control","weight":\#(control)},{"key":"new","weight":\#(new)}]}"#)
            #expect(response.status < 300, "\(response.text)")
        }
        let agent = ["X-Optimizely-SDK-Key: default", "Content-Type: application/json"]
        let protocols: [(String) throws -> JSONValue] = [
            { user in
                try server.request("POST", "/v1/assign", #"{"user_id":"\#(user)","experiment":"checkout"}"#)[
                    "variation_key"]
            },
            { user in
                let json = try server.request("POST", "/v1/evaluations", #"{"user_id":"\#(user)"}"#)["evaluations"]
                return json.array?.first?["value"] ?? .null
            },
            { user in
                try server.request(
                    "POST", "/v1/decide?keys=checkout", #"{"userId":"\#(user)"}"#, fields: agent)["variationKey"]
            },
            { user in
                let json = try server.request(
                    "POST", "/v1/activate?experimentKey=checkout", #"{"userId":"\#(user)"}"#, fields: agent
                ).json
                return json.array?.first?["variationKey"] ?? .null
            },
            { user in
                try server.request(
                    "POST", "/ofrep/v1/evaluate/flags/checkout", #"{"context":{"targetingKey":"\#(user)"}}"#)["value"]
            },
            { user in
                let json = try server.request(
                    "POST", "/get_evaluation", #"{"user":{"id":"\#(user)"},"featureId":"checkout"}"#)
                return json["evaluation"]["variationValue"]
            },
            { user in
                let json = try server.request("POST", "/get_evaluations", #"{"user":{"id":"\#(user)"}}"#)["evaluations"]
                return json["evaluations"].array?.first?["variationValue"] ?? .null
            },
        ]
        try put(1, 1)
        var variations: [JSONValue] = []
        for number in 0..<21 {
            let user = "user-\(number)"
            let first = try protocols[number % protocols.count](user)
            // Who is new from now on gets another.
            try put(first == "control" ? 0 : 1, first == "control" ? 1 : 0)
            for (index, ask) in protocols.enumerated() { #expect(try ask(user) == first, "\(user), \(index)") }
            try put(1, 1)
            variations.append(first)
        }
        #expect(variations.contains("control") && variations.contains("new"))
    }
}
