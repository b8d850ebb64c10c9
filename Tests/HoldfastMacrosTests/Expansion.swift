import SwiftSyntax
import SwiftSyntaxBuilder
import SwiftSyntaxMacroExpansion
import SwiftSyntaxMacros
import SwiftSyntaxMacrosGenericTestSupport
import Testing

@testable import HoldfastMacros

/// Expands the macros in a source as the compiler does, and compares what comes out and what is told.
func expectExpansion(
    of source: String, is expanded: String, diagnostics: [DiagnosticSpec] = [], fixed: String? = nil,
    fileID: StaticString = #fileID, filePath: StaticString = #filePath, line: UInt = #line, column: UInt = #column
) {
    let macros: [String: any Macro.Type] = [
        "StringRemoteValue": StringRemoteValueMacro.self,
        "BoolRemoteValue": BoolRemoteValueMacro.self,
        "BaselineStringRemoteValue": BaselineStringRemoteValueMacro.self,
        "BaselineBoolRemoteValue": BaselineBoolRemoteValueMacro.self,
        "RemoteValuesNamespace": RemoteValuesNamespaceMacro.self,
    ]
    assertMacroExpansion(
        source, expandedSource: expanded, diagnostics: diagnostics,
        macroSpecs: macros.mapValues { MacroSpec(type: $0, conformances: ["RemoteValuesNamespace"]) }, fixedSource: fixed,
        failureHandler: { failure in
            let location = SourceLocation(
                fileID: failure.location.fileID, filePath: failure.location.filePath,
                line: failure.location.line, column: failure.location.column)
            Issue.record("\(failure.message)", sourceLocation: location)
        },
        fileID: fileID, filePath: filePath, line: line, column: column)
}
