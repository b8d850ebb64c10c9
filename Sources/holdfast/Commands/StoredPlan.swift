import HoldfastCore
import JSON

/// A plan in a file: the definitions, and the version of the server's definitions with which they were compared.
/// `holdfast apply` applies it if the server still has that version.
struct StoredPlan {
    /// The content of the file. The member `holdfast_plan` distinguishes a plan from other JSON files.
    private let object: JSONObject
    /// The path of the file for errors; empty for a plan that was not read from one.
    private let path: String

    /// Makes the plan of a preview.
    ///
    /// - Parameters:
    ///   - basis: the version of the server's definitions that were compared.
    ///   - query: the query parameters with which the plan was made.
    ///   - sdkKey: the project; `nil` for the default one.
    init(_ definitions: JSONValue, _ basis: String, _ query: [String], _ sdkKey: String?) {
        var object = JSONObject()
        object["holdfast_plan"] = 1
        object["basis"] = .string(basis)
        object["sdk_key"] = sdkKey.map { .string($0) } ?? .null
        object["query"] = .array(query.map { .string($0) })
        object["definitions"] = definitions
        self.object = object
        path = ""
    }

    /// Reads a plan from a file.
    ///
    /// - Throws: ``Failure`` if the file is not a plan.
    init(readFrom path: String) throws {
        let content: [UInt8]
        do {
            content = try OpenFile.content(of: path)
        } catch {
            throw Failure("\(path) cannot be read: \(error)")
        }
        guard let object = (try? JSONParser().parse(content))?.object, object["holdfast_plan"] == 1 else {
            throw Failure("\(path) must be a plan that 'holdfast plan --out' has written; name definitions with -f")
        }
        self.object = object
        self.path = path
    }

    /// Writes the plan to a file.
    func write(to path: String) throws {
        try OpenFile.write(String(decoding: JSONValue.object(object).encoded(), as: UTF8.self) + "\n", to: path)
    }

    /// Sends the definitions, if the server's definitions have not changed since the plan was made.
    ///
    /// - Throws: ``Failure`` if the plan is for another project, or if the definitions have changed since.
    func apply(to client: ServerClient, sdkKey: String?, moves: String) throws -> JSONValue {
        let planned = object["sdk_key"]?.string
        guard planned == sdkKey else {
            throw Failure(
                "\(path) must be applied to the project that it was made for, \(planned ?? "the default one"); got "
                    + (sdkKey ?? "the default one"))
        }
        let query = (object["query"]?.array ?? []).compactMap(\.string) + ["moves=\(moves)"]
        do {
            return try client.send(
                "PUT", "/v1/definitions?" + query.joined(separator: "&"), body: object["definitions"],
                ifMatch: object["basis"]?.string ?? "")
        } catch let refusal as ServerRefusal where refusal.status == 412 {
            throw Failure(
                "the definitions must be as they were when \(path) was made; they have changed since: plan again")
        }
    }
}
