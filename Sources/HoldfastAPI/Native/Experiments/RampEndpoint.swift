import Bucketing
import Definitions
import HTTPServer
import HoldfastCore
import JSON
import Storage

extension ConclusionEndpoints {
    /// `POST /v1/experiments/{key}/ramp` stops the ramp that increases an experiment's traffic step by step, or lets it
    /// continue. The body is `{"action":"stop"}` or `{"action":"resume"}`.
    func controlRamp(_ request: borrowing Request, _ call: Call) async throws -> Response {
        let key = try request.key()
        let text = try request.withBody { bytes throws(CoreError) in
            try JSONInput.parse(bytes).object("the body", knowing: ["action"]).text("action")
        }
        guard let action = RampControl(rawValue: text) else {
            let names = RampControl.allCases.map(\.rawValue).joined(separator: ", ")
            throw CoreError(.unprocessable, "`action` must be one of \(names); got '\(text)'", at: ["action"])
        }
        let now = clock.now()
        return try await edit(request, call, .experimentRamp, key) { definitions throws(CoreError) in
            try definitions.control(rampOf: Identifier(key), action, at: now)
        }
    }
}
