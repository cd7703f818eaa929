[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

# The requirements of a client. The server also needs hf-credit, without its dependencies: see the Dockerfile.
[project]
name = "openenv-$package"
version = "$version"
description = "The environment $name of hf-credit, as an OpenEnv environment"
requires-python = ">=3.11"
license = "Apache-2.0"
dependencies = ["openenv>=0.10,<0.11"]

[project.scripts]
server = "$package.server.app:main"

[tool.setuptools]
packages = ["$package", "$package.server"]
package-dir = { "$package" = ".", "$package.server" = "server" }
