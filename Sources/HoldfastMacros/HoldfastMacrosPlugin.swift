import SwiftCompilerPlugin
import SwiftSyntaxMacros

@main
struct HoldfastMacrosPlugin: CompilerPlugin {
    let providingMacros: [any Macro.Type] = [
        StringRemoteValueMacro.self,
        BoolRemoteValueMacro.self,
        BaselineStringRemoteValueMacro.self,
        BaselineBoolRemoteValueMacro.self,
        RemoteValuesNamespaceMacro.self,
    ]
}
