public import Bucketing
public import JSON

extension Form where Value == AssignmentLifetime {
    /// The lifetime of assignments: a number with a unit, such as `30d`, or `forever`.
    public static var assignmentLifetime: Self {
        Form(
            schema: ["type": "string", "pattern": "^([0-9]+[smhd]|forever)$"], shown: ["type": "string"],
            read: { $1.assignmentLifetime($0) },
            write: { .string($0.text) })
    }
}

extension AssignmentLifetime {
    /// The name of the member in bodies and files.
    public static let apiMember = "assignment_ttl"

    /// Reads the change of the lifetime from the body of a request.
    ///
    /// - Returns: `nil` if the member is absent, so that the lifetime stays as it is; `.some(nil)` if the member is
    ///   null, so that the lifetime is removed, and that of the project or the server applies.
    /// - Throws: 400 if the member is not a string, 422 if it is not a lifetime.
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
