public import Bucketing
public import JSON

extension Form where Value == AssignmentLifetime {
    /// How long assignments last, such as `30d`.
    public static var assignmentLifetime: Self {
        Form(
            schema: ["type": "string", "pattern": "^([0-9]+[smhd]|forever)$"], shown: ["type": "string"],
            read: { $1.assignmentLifetime($0) },
            write: { .string($0.text) })
    }
}

extension AssignmentLifetime {
    /// The member of bodies and files.
    public static let apiMember = "assignment_ttl"

    /// Reads the lifetime from the body of a request, of which null leaves it to the project or the server.
    ///
    /// - Returns: `nil` if it is absent.
    /// - Throws: 400 or 422 if it is none.
    public static func change(in object: JSONObject) throws(CoreError) -> AssignmentLifetime?? {
        guard object[apiMember] != nil else { return nil }
        guard let text = try object.optionalText(apiMember) else { return .some(nil) }
        guard let lifetime = AssignmentLifetime(text) else {
            throw CoreError(.unprocessable, "`\(apiMember)` must be \(form); got '\(text)'", at: [apiMember])
        }
        return .some(lifetime)
    }
}

extension FaultCollector {
    fileprivate mutating func assignmentLifetime(_ given: GivenMember) -> AssignmentLifetime? {
        collect(try AssignmentLifetime.change(in: given.object)) ?? nil
    }
}
