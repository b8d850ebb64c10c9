public import Bucketing
public import Definitions
public import JSON
public import Storage

extension DefinedElement {
    /// Returns the element as `GET` shows it.
    public func description(in project: Project) -> JSONValue {
        description(in: project.compiled, sdkKey: project.sdkKey)
    }

    /// Parses the body of a `PUT` as ``change(_:key:of:)`` does, and checks that the segments in its audiences are
    /// defined.
    public static func change(
        _ body: JSONValue, key: String, of description: JSONValue?, _ schema: AttributeSchema
    ) throws(CoreError) -> Change? {
        let change = try change(body, key: key, of: description)
        try change?.checkSegments(schema)
        return change
    }
}

// MARK: - The audit log

/// An element whose changes the audit log records.
public protocol AuditedElement: DefinedElement {
    /// The action of an entry about a created or changed element.
    static var putAction: AuditAction { get }
    /// The action of an entry about a removed element.
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
