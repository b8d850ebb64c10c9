import Bucketing
import HTTPServer

extension JSONObject {
    /// A member that must be a string.
    func text(_ name: String, in place: JSONPointer = []) throws(Problem) -> String {
        guard let text = try optionalText(name, in: place) else {
            throw Problem(.badRequest, "\(name) is missing", at: place.appending(name))
        }
        return text
    }

    /// A member that is a string or absent.
    func optionalText(_ name: String, in place: JSONPointer = []) throws(Problem) -> String? {
        guard let value = self[name], !value.isNull else { return nil }
        guard let text = value.string else {
            throw Problem(.badRequest, "\(name) is a string, not \(value.kind)", at: place.appending(name))
        }
        return text
    }
}
