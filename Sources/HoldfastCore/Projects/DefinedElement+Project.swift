public import Bucketing
public import Definitions
public import JSON
public import Storage

extension DefinedElement {
    /// The element as `GET` presents it.
    public func description(in project: Project) -> JSONValue {
        description(in: project.compiled, sdkKey: project.sdkKey)
    }

    /// Returns the change that a body asks for, whose segments must be defined; see ``change(_:key:of:)``.
    public static func change(
        _ body: JSONValue, key: String, of description: JSONValue?, _ schema: AttributeSchema
    ) throws(CoreError) -> Change? {
        let change = try change(body, key: key, of: description)
        try change?.checkSegments(schema)
        return change
    }
}

// MARK: - The audit log

/// An element with the actions that record what becomes of it.
public protocol AuditedElement: DefinedElement {
    static var putAction: AuditAction { get }
    static var deleteAction: AuditAction { get }
}

extension Experiment: AuditedElement {
    public static var putAction: AuditAction { .experimentPut }
    public static var deleteAction: AuditAction { .experimentArchive }
}

extension Flag: AuditedElement {
    public static var putAction: AuditAction { .flagPut }
    public static var deleteAction: AuditAction { .flagDelete }
}

extension Holdout: AuditedElement {
    public static var putAction: AuditAction { .holdoutPut }
    public static var deleteAction: AuditAction { .holdoutDelete }
}

extension MetricDefinition: AuditedElement {
    public static var putAction: AuditAction { .metricPut }
    public static var deleteAction: AuditAction { .metricDelete }
}
