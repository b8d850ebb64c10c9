import SwiftSyntax
import SwiftSyntaxBuilder
import SwiftSyntaxMacroExpansion
import SwiftSyntaxMacros
import SwiftSyntaxMacrosGenericTestSupport
import Testing

@testable import HoldfastMacrosPlugin

/// Expands the macros in a source as the compiler does, and compares the expansion and the diagnostics.
func expectExpansion(
    of source: String, is expanded: String, diagnostics: [DiagnosticSpec] = [], fixed: String? = nil,
    fileID: StaticString = #fileID, filePath: StaticString = #filePath, line: UInt = #line, column: UInt = #column
) {
    let macros: [String: MacroSpec] = [
        "StringRemoteValue": MacroSpec(
            type: StringRemoteValueMacro.self, conformances: ["CaseIterable", "StringInitializableRemoteValue"]),
        "BoolRemoteValue": MacroSpec(
            type: BoolRemoteValueMacro.self, conformances: ["CaseIterable", "BoolEnumRemoteValue"]),
        "BaselineStringRemoteValue": MacroSpec(
            type: BaselineStringRemoteValueMacro.self, conformances: ["CaseIterable", "BaselineStringRemoteValue"]),
        "BaselineBoolRemoteValue": MacroSpec(
            type: BaselineBoolRemoteValueMacro.self, conformances: ["CaseIterable", "BaselineBoolRemoteValue"]),
        "RemoteValuesNamespace": MacroSpec(type: RemoteValuesNamespaceMacro.self),
    ]
    assertMacroExpansion(
        source, expandedSource: expanded, diagnostics: diagnostics, macroSpecs: macros, fixedSource: fixed,
        failureHandler: { failure in
            let location = SourceLocation(
                fileID: failure.location.fileID, filePath: failure.location.filePath,
                line: failure.location.line, column: failure.location.column)
            Issue.record("\(failure.message)", sourceLocation: location)
        },
        fileID: fileID, filePath: filePath, line: line, column: column)
}
