import Bucketing
import Definitions
import HTTPServer
import HoldfastCore
import JSON
import Storage

/// The evaluation context of a request: `{"context":{"targetingKey"?,…}}`. All members but the targeting key are
/// attributes of the user.
struct OFREPContext: Sendable {
    private static let parser = JSONParser(maximumDepth: 64)
    /// The maximum number of flags that a bulk evaluation may list.
    private static let flagLimit = 1_000

    let user: User
    /// The flags that the context lists, each once; `nil` for all.
    let flagKeys: [Identifier]?

    /// Parses the body of a request.
    init(_ bytes: UnsafeRawBufferPointer) throws(OFREPError) {
        let body: JSONValue
        do throws(JSONError) {
            body = try Self.parser.parse(bytes)
        } catch {
            throw OFREPError(.parseError, CoreError(error, in: "the body").detail)
        }
        guard let object = body.object else {
            throw OFREPError(.parseError, "the body must be an object; got \(body.kind)")
        }
        guard let context = object["context"]?.object else {
            throw OFREPError(
                .invalidContext, "`context` must be an object; got \(object["context"]?.kind ?? "no such member")")
        }
        flagKeys = try Self.flagKeys(context)
        var attributes = context
        attributes["targetingKey"] = nil
        guard let key = context["targetingKey"], !key.isNull, key.string != "" else {
            user = .unidentified(attributes: attributes)
            return
        }
        guard let text = key.string else {
            throw OFREPError(.invalidContext, "`targetingKey` must be a string; got \(key.kind)")
        }
        do throws(CoreError) {
            user = User(id: try ProfileInput.checkUserID(text, at: ["targetingKey"]), attributes: attributes)
        } catch {
            throw OFREPError(context: error)
        }
    }

    /// Returns the user, for an evaluation that needs one.
    ///
    /// - Throws: 400 if the context names no user.
    func identifiedUser() throws(OFREPError) -> User {
        guard !user.isUnidentified else {
            throw OFREPError(.targetingKeyMissing, "`targetingKey` is required in the context: the id of the user")
        }
        return user
    }

    /// Returns the flags that providers list for a bulk evaluation. OFREP does not define a member for them: Flipt uses
    /// `flags`, an array or a text with commas, and GO Feature Flag uses `gofeatureflag.flagList`.
    private static func flagKeys(_ context: JSONObject) throws(OFREPError) -> [Identifier]? {
        var list = context["gofeatureflag"]?.object?["flagList"]
        if list == nil { list = context["flags"] }
        var names: [String]
        switch list {
        case .string(let text):
            names = text.split(separator: ",").map { part in String(part.filter { $0 != " " }) }
        case .array(let elements): names = elements.compactMap(\.string)
        // Any other value is an attribute.
        default: return nil
        }
        names = names.filter { !$0.isEmpty }
        guard !names.isEmpty else { return nil }
        guard names.count <= flagLimit else {
            throw OFREPError(.invalidContext, "a list of flags must have at most \(flagLimit); got \(names.count)")
        }
        return names.map { Identifier($0) }.uniqued()
    }

    /// Returns the query with the attributes that the project may use.
    static func usable(_ query: DecisionQuery, in project: Project) throws(OFREPError) -> DecisionQuery {
        do throws(CoreError) {
            return try query.usable(in: project, at: [])
        } catch {
            throw OFREPError(context: error)
        }
    }
}
