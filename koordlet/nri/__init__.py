"""ttrpc, the NRI multiplexer and the plugin session. Floor 5.

``mux`` and ``ttrpc`` know nothing of NRI::

    trunk = Trunk(reader, writer)
    client = Client(trunk.sender(2))
    trunk.open(2, client.receive)
    reading = asyncio.create_task(trunk.run())
    answer = await client.call("nri.pkg.api.v1alpha1.Runtime", "RegisterPlugin", request, 5.0)

``plugin.Plugin`` is what the daemon runs; ``session``, ``events``, ``changes`` and ``ttrpc`` load
protobuf, and are loaded when there is a runtime to talk to.
"""
