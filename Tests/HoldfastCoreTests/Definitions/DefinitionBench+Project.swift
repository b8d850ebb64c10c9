import Definitions
import DefinitionsTestSupport
import JSON

@testable import HoldfastCore

/// What takes a project to change definitions.
extension DefinitionBench {
    var project: Project { GoldenProject.project(compiled, version: 1) }

    /// Applies a set of definitions, as `PUT /v1/definitions` does.
    @discardableResult
    mutating func apply(
        _ set: JSONValue, prunes: Bool = false
    ) throws(CoreError) -> DefinitionSetEdit.Outcome {
        let draft = try GoldenProject.apply(try DefinitionSet(set), prunes: prunes, to: project)
        compiled = draft.compiled
        return draft.outcome
    }

    /// All definitions in the form of files.
    var files: JSONValue { DefinitionSet(compiled.definitions, GoldenProject.schema).json }
}
