// swift-tools-version:5.9
// `make test-swift` lays this package out in target/swift, with the sources that are generated of the library.

import PackageDescription

let package = Package(
    name: "Tidegate",
    products: [.library(name: "Tidegate", targets: ["Tidegate"])],
    targets: [
        .systemLibrary(name: "TidegateFFI"),
        .target(
            name: "Tidegate",
            dependencies: ["TidegateFFI"],
            linkerSettings: [.linkedLibrary("tidegate_uniffi")]
        ),
        .testTarget(name: "TidegateTests", dependencies: ["Tidegate"]),
    ]
)
