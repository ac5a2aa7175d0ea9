import setuptools  # noqa: I001
setuptools.setup()
